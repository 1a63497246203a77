local $names(TouchTree) = $arguments(TouchTree)
touch(tree, path, now, nil, capacity)
