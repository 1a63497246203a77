"""`Fit`: what grammars need around them for a tokenizer to be able to follow them."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fit:
    """
    Attributes:
        forces: text that a grammar leaves no choice for may be tokenized and appended. False for a
            tokenizer that cannot spell any text: it would read a character that it lacks as its
            token for unknown ones, and llguidance would append that.
        leads_with_space: outputs begin with a space that their text does not have
    """

    forces: bool
    leads_with_space: bool

    def fitted(self, text: str) -> str:
        """
        Args:
            text: grammars in llguidance's serialized form, of which the first is the output's
        """
        if self.forces and not self.leads_with_space:
            return text
        output, *others = json.loads(text)["grammars"]
        options = "" if self.forces else '%llguidance {"no_forcing": true}\n'
        space = '" " ' if self.leads_with_space else ""
        outer = {"lark_grammar": f"{options}start: {space}@output"}
        return json.dumps({"grammars": [outer, {**output, "name": "output"}, *others]})
