/* Which image is attacked: one of the data, or a file of the user's, framed for the victim.

   const images = new BrusleImages(changed);  // called when an image is there, or none any more
   images.offer(data)                   names of the data
   images.forget()                      the victim changes
   images.frameFor(number, victim)      and this is the new one: {shape, framed}
   images.chosen                        what `api/images` answered; null if there is none */
"use strict";

const BrusleImages = (() => {
  const { make } = brusleElements;
  const { ask } = brusleAsking;
  const { pictureOf } = brusleTracePixels;
  const MOST = 16 * 2 ** 20; // bytes of a file
  const element = (name) => document.getElementById(name);

  class Images {
    constructor(changed) {
      this.changed = changed;
      this.chosen = null;
      this.wanted = { row: null, file: null }; // what was chosen, for whatever victim
      this.start = 0;
      this.turn = 0; // of the image that is read; answers to earlier wishes come too late
      this.page = 0; // and of the thumbnails
      element("data").addEventListener("change", () => this.browse(0));
      element("thumbnails-back").addEventListener("click", () => this.browse(this.start - this.step));
      element("thumbnails-on").addEventListener("click", () => this.browse(this.start + this.step));
      element("file").addEventListener("change", ({ target }) => this.take(target.files[0]));
      element("size").addEventListener("change", () => this.wanted.file && this.choose());
      this.acceptDrops();
    }

    get step() {
      return Math.max(1, element("thumbnails").childElementCount);
    }

    offer(data) {
      element("data").replaceChildren(...data.map((name, at) => new Option(name, at)));
    }

    /* There is none until it is framed for the new victim. */
    forget() {
      this.turn++;
      this.chosen = null;
      this.changed();
    }

    async frameFor(number, victim) {
      this.victim = { number, ...victim };
      element("side").hidden = victim.shape !== null || victim.framed;
      const browsed = this.browse(this.start);
      if (this.wanted.row === null && this.wanted.file === null) {
        await browsed;
        element("thumbnails").firstElementChild?.click();
      } else await this.choose();
    }

    /* The thumbnails from some number on. */
    async browse(start) {
      const page = ++this.page;
      this.start = Math.max(0, start);
      const list = element("thumbnails");
      const data = Number(element("data").value);
      try {
        const found = await ask(`api/data/${data}?victim=${this.victim.number}&start=${this.start}`);
        if (page !== this.page) return;
        list.replaceChildren(...found.images.map((image) => this.thumbnail(data, image)));
        const last = found.start + found.images.length;
        element("thumbnails-about").textContent = `${found.start + 1} to ${last} of ${found.total}`;
        element("thumbnails-back").disabled = found.start === 0;
        element("thumbnails-on").disabled = last >= found.total;
      } catch (error) {
        if (page !== this.page) return;
        list.replaceChildren();
        element("thumbnails-about").textContent = error.message;
        element("thumbnails-back").disabled = element("thumbnails-on").disabled = true;
      }
    }

    thumbnail(data, { row, name, label, picture }) {
      const image = make("img");
      image.src = picture;
      image.alt = `${name}, ${label}`;
      const made = make("button", "", image);
      made.type = "button";
      made.title = image.alt;
      made.dataset.row = `${data}/${row}`;
      made.setAttribute("aria-pressed", made.dataset.row === this.marked());
      made.addEventListener("click", () => {
        this.wanted = { row: { data, row }, file: null };
        element("file").value = "";
        this.choose();
      });
      return made;
    }

    marked() {
      const { row } = this.wanted;
      return row === null ? "" : `${row.data}/${row.row}`;
    }

    acceptDrops() {
      const place = element("drop");
      for (const kind of ["dragover", "drop"]) {
        // or the browser shows the file instead of this page
        document.addEventListener(kind, (event) => event.preventDefault());
      }
      document.addEventListener("dragover", () => place.classList.add("over-it"));
      document.addEventListener("dragleave", () => place.classList.remove("over-it"));
      document.addEventListener("drop", ({ dataTransfer }) => {
        place.classList.remove("over-it");
        this.take(dataTransfer.files[0]);
      });
    }

    take(file) {
      if (!file) return;
      this.wanted = { row: null, file };
      this.choose();
    }

    /* Have what is wanted read for the present victim; the latest wish counts. */
    async choose() {
      const turn = ++this.turn;
      for (const one of element("thumbnails").children) {
        one.setAttribute("aria-pressed", one.dataset.row === this.marked());
      }
      this.chosen = null;
      this.changed();
      try {
        const found = await this.read();
        if (turn !== this.turn) return;
        await this.show(found);
        this.chosen = found;
      } catch (error) {
        if (turn === this.turn) this.say(error.message);
      }
      if (turn === this.turn) this.changed();
    }

    async read() {
      const { row, file } = this.wanted;
      const victim = this.victim.number;
      if (row !== null) return ask("api/images/data", { victim, ...row });
      if (file.size > MOST) throw new Error(`${file.name} is above 16 MB: make it smaller`);
      const content = await base64(file);
      return ask("api/images/file", { victim, name: file.name, content, size: this.size() });
    }

    /* A victim that takes squares gets a square; one that says nothing gets what the user says. */
    size() {
      const { shape, framed } = this.victim;
      if (shape === null) return framed ? null : Number(element("size").value) || null;
      return !framed && shape[1] === shape[2] ? shape[1] : null;
    }

    async show(found) {
      found.original = Uint8Array.from(atob(found.levels), (level) => level.charCodeAt(0));
      const picture = await pictureOf(found.original, found.shape);
      const canvas = element("preview");
      [canvas.width, canvas.height] = [picture.width, picture.height];
      canvas.getContext("2d").putImageData(picture, 0, 0);
      const [, h, w] = found.shape;
      const size = found.remark || `${h} x ${w} pixels`;
      const label = found.label_name ?? "labelled as the victim sees it";
      this.say(`${found.name}: ${label}, ${size}`);
    }

    say(text) {
      element("chosen-about").textContent = text;
      element("preview").setAttribute("aria-label", text);
    }
  }

  function base64(file) {
    return new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result.split(",")[1] ?? "");
      reader.onerror = () => failed(new Error(`${file.name} cannot be read`));
      reader.readAsDataURL(file);
    });
  }

  return Images;
})();
