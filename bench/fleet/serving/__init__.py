"""A load generator for OpenAI endpoints: workloads, arrivals, timing and statistics."""
