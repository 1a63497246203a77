-- How long one router's queue is.
$reader(QUEUE)
