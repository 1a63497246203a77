"""Settings of the limits on clients, which routers and workers have alike."""

from typing import Annotated

from pydantic import Field

HeaderTimeout = Annotated[
    float, Field(gt=0, description="longest time for a client to send its headers, in seconds")
]
BodyTimeout = Annotated[
    float, Field(gt=0, description="longest time for a client to send its body, in seconds")
]
MinBodyRate = Annotated[
    int,
    Field(
        ge=0,
        description="bytes per second at which a client must send its body, over any 10 s;"
        " slower ones get 408",
    ),
]
KeepAliveTimeout = Annotated[
    float, Field(gt=0, description="how long a client's idle connection stays open, in seconds")
]
MaxHeaderBytes = Annotated[
    int, Field(ge=1024, description="longest request line and headers; longer ones get 431")
]
MaxBodyValues = Annotated[
    int,
    Field(
        ge=1024,
        description="most values of a request body's JSON, such as token ids; an object or a"
        " list counts as 8. More get 413",
    ),
]
MaxBodiesBytes = Annotated[
    int,
    Field(
        ge=1,
        description="memory for the bodies of all requests in progress; more get 503. At least"
        " max_body_bytes",
    ),
]
