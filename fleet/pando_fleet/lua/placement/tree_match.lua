local $names(MatchTree) = $arguments(MatchTree)
return search(tree, path, EVER)
