"""A load generator for OpenAI endpoints: what is sent, when, how it is timed, what it comes to."""
