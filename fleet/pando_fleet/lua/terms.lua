-- What a ready replica says of itself to placement.
$reader(TERMS)
