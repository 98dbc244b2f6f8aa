// Keys and the token line. Every page works without this.
"use strict";

const first = (selector) => document.querySelector(selector);

function follow(selector) {
  const link = first(selector);
  if (link) link.click();
  return Boolean(link);
}

function focusRow(step) {
  const rows = [...document.querySelectorAll("a.open")];
  if (!rows.length) return false;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step));
  rows[next].focus({ preventScroll: true });
  rows[next].scrollIntoView({ block: "nearest" });
  return true;
}

const inspector = first("#inspector");
let chosen = null;

function choose(token) {
  if (chosen) chosen.classList.remove("chosen");
  chosen = token;
  inspector.hidden = !token;
  if (!token) return;
  token.classList.add("chosen");
  token.scrollIntoView({ block: "nearest" });
  inspector.textContent = token.title;
}

function chooseNext(step) {
  const tokens = [...document.querySelectorAll("section .tokens .tok, details[open] .tokens .tok")];
  if (!inspector || !tokens.length) return false;
  const at = tokens.indexOf(chosen);
  choose(tokens[at < 0 ? 0 : Math.min(tokens.length - 1, Math.max(0, at + step))]);
  return true;
}

const inList = Boolean(first("a.open"));
const keys = {
  j: () => (inList ? focusRow(1) : follow('a[rel="next"]')),
  k: () => (inList ? focusRow(-1) : follow('a[rel="prev"]')),
  n: () => follow('.pager a[rel="next"]'),
  p: () => follow('.pager a[rel="prev"]'),
  u: () => follow('a[rel="up"]'),
  t: () => follow(".tabs a:not([aria-current])"),
  "/": () => { const field = first("#q"); if (field) field.select(); return Boolean(field); },
  ArrowRight: () => chooseNext(1),
  ArrowLeft: () => chooseNext(-1),
  Escape: () => { if (inspector && chosen) choose(null); return false; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (act && act()) event.preventDefault();
});

if (inspector) {
  document.addEventListener("click", (event) => {
    const token = event.target.closest(".tokens .tok");
    choose(token && token !== chosen ? token : null);
  });
}

// On a narrow screen the filters come before the list: closed, they leave room for it.
const fold = first(".facets .fold");
if (fold && matchMedia("(max-width: 62rem)").matches) fold.open = false;
