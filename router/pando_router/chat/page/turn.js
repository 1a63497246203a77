// A question and its answer: the text as it comes, below it which replica gave it, what it cost, and why
// it went there. What was wrong stands there, too, with a button that sends the question again.

const replicaColours = new Map(); // by replica, in the order in which they were seen
const COLOURS = 5; // that mean nothing else on any page: --r0 to --r4

function replicaName(name) {
  if (!replicaColours.has(name)) replicaColours.set(name, replicaColours.size % COLOURS);
  return make("b", { class: `replica r${replicaColours.get(name)}` }, name);
}

class TurnView {
  /** `again` is called to send the question again, `mayExplain()` says whether the key is an admin's. */
  constructor(turn, again, mayExplain) {
    Object.assign(this, { turn, again, mayExplain });
    this.text = make("div", { class: "answer" });
    this.answer = new Answer(this.text);
    this.reasoning = make("p");
    this.thought = make("details", { class: "reasoning" }, [make("summary", {}, "Reasoning"), this.reasoning]);
    this.thought.hidden = true;
    this.foot = make("div", { class: "foot" });
    this.node = make("article", {}, [
      make("p", { class: "question" }, [make("span", { class: "unseen" }, "You: "), turn.question]),
      make("span", { class: "unseen" }, "Answer: "),
      this.thought,
      this.text,
      this.foot,
    ]);
    if (turn.reasoning) this.grown("reasoning", turn.reasoning);
    if (turn.answer) this.grown("answer", turn.answer);
    this.settle();
  }

  grown(kind, piece) {
    if (kind === "answer") return this.answer.add(piece);
    this.thought.hidden = false;
    this.reasoning.append(piece);
  }

  /** While its answer is awaited. */
  wait() {
    this.node.setAttribute("aria-busy", "true");
    this.foot.replaceChildren(make("p", { class: "waiting" }, "Waiting for the first token"));
  }

  /** The replica is known as soon as its answer begins. */
  begun() {
    this.foot.replaceChildren(make("p", { class: "facts" }, [replicaName(this.turn.facts.replica ?? "a replica"), " is answering"]));
  }

  /** Shows what is known once the answer has ended, however it did. */
  settle() {
    const { turn } = this;
    this.node.removeAttribute("aria-busy");
    this.answer.finish();
    const parts = turn.facts ? [factsOf(turn), this.why()] : [];
    if (turn.state === "stopped") parts.unshift(make("div", { class: "remark" }, ["Stopped. ", this.againButton()]));
    if (turn.facts?.finish === "length") parts.unshift(make("p", { class: "remark" }, "It reached the longest length that it may have."));
    if (turn.error) parts.unshift(this.complaint(turn.error));
    this.foot.replaceChildren(...parts);
  }

  complaint({ title, message, retryAfter }) {
    const wait = retryAfter ? ` The router asks to wait ${retryAfter} s.` : "";
    return make("div", { class: "error", role: "alert" }, [make("b", {}, title), make("p", {}, sentence(message) + wait), this.againButton()]);
  }

  againButton() {
    const button = make("button", { type: "button", class: "again small" }, "Send again");
    button.addEventListener("click", this.again);
    return button;
  }

  /** Another turn has come: this one is not sent again. */
  retire() {
    this.foot.querySelector(".again")?.remove();
  }

  /** Asked for at once where it may be, so that it is there before the router forgets the request. */
  why() {
    const summary = make("summary", {}, "Why there?");
    const inside = make("div", { class: "explanation" });
    const details = make("details", { class: "why" }, [summary, inside]);
    const look = async () => {
      try {
        const { tries } = await ask(`/route/explain?request_id=${encodeURIComponent(this.turn.facts.request_id)}`);
        const [last] = tries;
        summary.replaceChildren("Why there? ", make("span", {}, sentence(last.hit_reason)));
        inside.replaceChildren(...tries.flatMap(describe));
      } catch (error) {
        inside.replaceChildren(make("p", {}, sentence(error.message)));
      }
    };
    details.addEventListener("toggle", () => details.open && details.scrollIntoView({ block: "nearest" }));
    if (this.isNew && this.mayExplain()) look();
    else details.addEventListener("toggle", look, { once: true });
    return details;
  }
}

/** What an error is, in a few words. */
function titleOfError({ status }, began) {
  if (began) return "The answer was cut";
  if (!status) return "No connection";
  if (status === 429) return "Too many requests (429)";
  return status < 500 ? `Refused (${status})` : `No answer (${status})`;
}

function factsOf({ facts }) {
  const { replica, prompt_tokens: prompt, cached_tokens: cached, output_tokens: output, first_s } = facts;
  const line = make("div", { class: "facts" });
  if (replica) line.append(replicaName(replica));
  if (prompt !== null) {
    const share = make("span", {}, `${format.whole(prompt)} prompt tokens`);
    if (cached !== null) share.append(", ", make("b", {}, `${format.whole(cached)} cached`));
    line.append(make("span", { class: "prompt" }, [cachedBar(prompt, cached ?? 0), share]));
  }
  const speed = speedOf(facts);
  const times = [
    output !== null && `${format.whole(output)}\u00a0tokens`,
    first_s !== null && `first token after ${format.seconds(first_s)}`,
    speed !== null && `${format.count(speed)}\u00a0tokens/s`,
  ].filter(Boolean);
  if (times.length) line.append(make("span", {}, times.join(" · ")));
  return line;
}

const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

function cachedBar(prompt, cached) {
  const part = svg("rect", { class: "cached", height: 14, width: prompt ? (100 * cached) / prompt : 0 });
  return svg("svg", { class: "bar", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" }, part);
}
