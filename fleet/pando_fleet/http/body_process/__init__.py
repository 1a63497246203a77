"""Work on large bodies in a process of its own, whose memory ends with it.

In the process that serves, it would hold the interpreter's lock, and what the event loop makes
meanwhile would lie among its objects, so that their memory could not go back.

    process.py  starts and ends that process, and asks it
    answers.py  what runs in it
    frames.py   questions and answers on the socket between the two
"""
