"""What a new user starts and asks first."""

import openai
import pytest

from pando.up.models import SMOLLM2
from pando.up.settings import UpSettings
from tests.e2e.up_process import UpProcess

pytestmark = pytest.mark.e2e


def test_the_first_command_serves_a_model_that_knows_the_largest_ocean(smollm2: UpProcess) -> None:
    assert UpSettings.model_fields["model"].default == SMOLLM2 == "smollm2"
    client = openai.OpenAI(base_url=f"{smollm2.url}/v1", api_key="none")
    answer = client.chat.completions.create(
        model=SMOLLM2,
        messages=[{"role": "user", "content": "What is the largest ocean on Earth?"}],
        temperature=0,
    )
    content = answer.choices[0].message.content or ""
    assert content.startswith("The largest ocean on Earth is the Pacific Ocean")
    assert answer.choices[0].finish_reason == "stop"
