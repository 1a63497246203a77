// The tab's conversations, kept in sessionStorage: a reload shows them again, the tab's end ends them.

const STORE = "pando-conversations";
const MOST_CONVERSATIONS = 12;
const MOST_CHARACTERS = 2_000_000; // of all together; a tab may keep about five million

/**
 * A conversation is {id, model, system, temperature, turns}; a turn is {question, answer, reasoning,
 * state, error, facts}, as turn.js shows it.
 */
function newConversation(model) {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), model, system: "", temperature: "", turns: [] };
}

const titleOf = ({ turns }) => turns[0]?.question.slice(0, 60) || "New conversation";

/** {conversations, shown, side}: `shown` are ids, from left to right; `side`: two are to be shown. */
function loadConversations() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE));
    const turns = kept.conversations.flatMap((one) => one.turns);
    turns.filter((turn) => ["new", "streaming"].includes(turn.state)).forEach((turn) => { turn.state = "stopped"; });
    return kept;
  } catch {
    // none yet, or of another version
  }
  return { conversations: [], shown: [], side: false };
}

/** Returns what is wrong, or nothing. */
function saveConversations(state) {
  const text = JSON.stringify(state);
  if (text.length > MOST_CHARACTERS) {
    return "These conversations are too long for the tab to keep: a reload loses what is new. Close one.";
  }
  try {
    sessionStorage.setItem(STORE, text);
  } catch (error) {
    return `The tab does not keep conversations: ${error.message}`;
  }
  return "";
}

/** What the model is given: questions without an answer are left out, but for the last one. */
function messagesOf({ system, turns }) {
  const said = turns.filter((turn, i) => turn.answer || i === turns.length - 1);
  return [
    ...(system.trim() ? [{ role: "system", content: system }] : []),
    ...said.flatMap(({ question, answer }) => [
      { role: "user", content: question },
      ...(answer ? [{ role: "assistant", content: answer }] : []),
    ]),
  ];
}
