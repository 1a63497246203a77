"""What is cut from a tree where a replica held less than it promised, on a recorded trace."""
