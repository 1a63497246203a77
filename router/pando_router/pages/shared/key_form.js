// Asks for an API key with the page's key-form, in place of its main part.

class KeyForm {
  /** `entered` is called with each key that was typed in, once it is in sessionStorage. */
  constructor(entered) {
    this.form = byId("key-form");
    this.field = byId("key");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, this.field.value.trim());
      this.field.value = "";
      this.close();
      notice("");
      entered();
    });
  }

  get isOpen() {
    return !this.form.hidden;
  }

  /** After a request that `error` refused. */
  open(error) {
    const wrong = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    byId("main").hidden = true;
    this.form.hidden = false;
    notice("");
    byId("key-error").textContent = wrong ? error.message : "";
    this.field.focus();
  }

  close() {
    this.form.hidden = true;
  }
}

function notice(text) {
  const line = byId("notice");
  if (line.textContent !== text) line.textContent = text;
  line.hidden = !text;
}
