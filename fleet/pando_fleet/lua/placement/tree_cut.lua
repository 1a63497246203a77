local $names(CutTree) = $arguments(CutTree)
cut(tree, path, depth)
