"""Speech to text: windows of a file through the engine, and answers of its segments.

Read in this order:
    transcribing.py  a request: reads the form, listens, writes what was said
    windows.py       one window: its order for the engine, and whether it is decoded again
    listening.py     a whole file: window after window, or several at once
    timing.py        when tokens came, for metrics
    answers.py       what comes out, in OpenAI's forms
    spoken_words.py  when each word is spoken
    subtitles.py     SRT and WebVTT
"""
