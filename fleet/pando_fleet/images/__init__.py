"""Images, videos and sounds in prompts, as far as placement needs them: which one, how large, how
many tokens.

Read in this order:
    data_url.py    the bytes in a `data:` URL, however it is spelled
    size.py        width and height from a file's header
    film.py        what a video's header says
    film_rule.py   a model's rule from that to tokens
    sound.py       how long a file of sound is
    sound_rule.py  a model's rule from that to tokens
    rule.py        a model's rule from width and height to tokens, which workers report
    in_prefix.py   an image's place among a prompt's canonical bytes

Decodes no image and keeps none of its bytes. Imports nothing of the fleet.
"""
