"""The inner loops of a model step for CPUs: a small C++ library, built where a compiler is."""
