"""The bytes of the hottest prefixes, and what is done with them when a replica joins or drains."""
