"""A GPU that is not there: torch's CUDA on the CPU, which forbids what CUDA forbids.

Operations run at once and in order, so their values are those of a correct program. What a program
must do for a real device to agree is checked: of each piece of memory it is known which stream or
thread used which bytes, and a use that nothing orders behind an earlier one (an event, a
synchronisation) is an error, in whatever order the two happened to run. The ways of ordering are
vector clocks (Mattern 1989), as in ThreadSanitizer and torch's own `torch.cuda._sanitizer`.

Read in this order:
    memory.py     pieces of memory, their uses, and what is a race
    device.py     streams, launches, captured graphs
    tensors.py    tensors that say they are on a GPU
    transfers.py  new ones, and copies between the host and the device
    functions.py  what each of torch's functions does to them
    patches.py    `torch.cuda` replaced by the above
    kernels.py    flashinfer's kernels and those of adapters on such tensors; sums over ranks
    triton_kernels.py  the other Triton kernels
    engine.py     a whole engine on such GPUs
    engine_world.py     models and a scheduler for it, or for engines on a real GPU
    random_requests.py  random requests to either, and what the answers must be
    mutations.py  faults to put into it

Imports torch, pytest, the worker, and what other tests of it compare with.
"""
