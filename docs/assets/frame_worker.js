// A page that was opened from a file may not start workers. Where that is so, the worker of the
// search runs in a hidden frame of the page instead, with the part of a worker's interface it uses.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.frame.onload = () => this.load(String(address));
      document.body.append(this.frame);
    }

    load(address) {
      this.frame.onload = null;
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.hear("message", { data }));
      const script = inside.document.createElement("script");
      script.src = address;
      script.onerror = () => this.hear("error", {});
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      inside.document.body.append(script);
    }

    hear(kind, rest) {
      const event = new MessageEvent(kind, rest);
      this[`on${kind}`]?.(event);
      this.dispatchEvent(event);
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
        return;
      }
      const inside = this.frame.contentWindow;
      setTimeout(() => inside?.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
