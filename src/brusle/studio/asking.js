/* Questions to the studio: each carries the token, which the address of the page brought along.

   ask(path, body)            what is answered, as an object; with a body it is a POST
   listen(path, body, heard)  calls `heard` with every message until there is no more; a promise
   Both raise an Error whose message is for the user. */
"use strict";

const brusleAsking = (() => {
  const KEY = "brusle-studio-token";

  /* The token stands in the address only until it is read: nobody should copy or see it there. */
  function token() {
    const found = new URLSearchParams(location.hash.slice(1)).get("token");
    if (found) {
      sessionStorage.setItem(KEY, found); // of this tab and this port
      history.replaceState(null, "", `${location.pathname}#attack`);
    }
    return sessionStorage.getItem(KEY) ?? "";
  }

  const headers = { "X-Brusle-Token": token() };

  async function send(path, body) {
    const asked =
      body === undefined
        ? { headers }
        : {
            method: "POST",
            headers: { ...headers, "Content-Type": "application/json" },
            body: JSON.stringify(body),
          };
    let answer;
    try {
      answer = await fetch(path, asked);
    } catch {
      throw new Error("the studio does not answer: it may have ended");
    }
    if (!answer.ok) throw new Error(await reason(answer));
    return answer;
  }

  async function reason(answer) {
    const text = await answer.text();
    try {
      return JSON.parse(text).error;
    } catch {
      return text.trim();
    }
  }

  async function ask(path, body) {
    return (await send(path, body)).json();
  }

  async function listen(path, body, heard) {
    const reader = (await send(path, body)).body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ done: true }));
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        if (event.startsWith("data: ")) JSON.parse(event.slice(6)).forEach(heard);
      }
    }
  }

  return { ask, listen };
})();
