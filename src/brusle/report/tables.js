/* Tables as CSV: copied or, where the clipboard is closed to the page, saved as a file. */
"use strict";

const brusleTables = (() => {
  const { make, button } = brusleElements;
  const FORMULA = /^\s*[=+\-@']/; // with the apostrophe that a reader may take off again
  const NUMBERS = /^[-+]?[\d.,]*\*?( \[[-+>\d., ]*\])?$/; // "-1.2* [-3.4, +0.1]", "-"

  /* A button that hands out lines of cells; `name` is that of the file. */
  function offer(label, name, lines) {
    const told = make("span", "faint");
    told.setAttribute("role", "status");
    const act = async () => {
      told.textContent = await handOver(csvOf(lines()), `${name}.csv`);
    };
    return make("p", "tools", button(label, act), told);
  }

  async function handOver(text, name) {
    try {
      await navigator.clipboard.writeText(text);
      return "copied";
    } catch {
      save(text, name);
      return `saved as ${name}`;
    }
  }

  function save(text, name) {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  function csvOf(lines) {
    return lines.map((cells) => `${cells.map(cellOf).join(",")}\r\n`).join("");
  }

  /* A cell that no spreadsheet takes for a formula. */
  function cellOf(text) {
    const plain = FORMULA.test(text) && !NUMBERS.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  }

  function linesOf(table) {
    const cells = (row) => [...row.cells].map((cell) => cell.textContent.trim());
    return [...table.rows].map(cells);
  }

  /* Such a button below every table of the page. */
  function offerAll() {
    document.querySelectorAll("main section table").forEach((table, at) => {
      const section = table.closest("section").id;
      table.after(offer("Copy as CSV", `${section}-${at + 1}`, () => linesOf(table)));
    });
  }

  return { offer, offerAll };
})();
