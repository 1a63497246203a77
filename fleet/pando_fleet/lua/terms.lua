-- What a ready replica reports to placement.
$reader(TERMS)
$reader(ADAPTERS)
