"""The fleet simulator: Pando's placement, scheduling, caching and scaling code in virtual time."""
