-- The length of one router's queue.
$reader(QUEUE)
