// The images: one stop for the Tab key in each gallery, arrow keys inside, Enter or a click enlarges, Escape closes.
// Without this script every image is still there, only not larger.
"use strict";

const zoom = document.getElementById("zoom");
let shown = null;

function tilesAround(tile) {
  return [...tile.closest(".gallery").querySelectorAll(".tile")];
}

function focusOn(tile) {
  for (const other of tilesAround(tile)) other.tabIndex = other === tile ? 0 : -1;
  tile.focus();
}

function show(tile) {
  shown = tile;
  const name = tile.getAttribute("aria-label");
  zoom.querySelector("img").src = tile.querySelector("img").src;
  document.getElementById("zoom-name").textContent = name;
  if (!zoom.open) zoom.showModal();
}

function step(by) {
  const tiles = tilesAround(shown);
  show(tiles[(tiles.indexOf(shown) + by + tiles.length) % tiles.length]);
}

// The tile that an arrow key leads to: the neighbour to the side, or the nearest one in the next line.
function neighbour(tile, key) {
  const tiles = tilesAround(tile);
  const place = tiles.indexOf(tile);
  if (key === "ArrowRight") return tiles[place + 1];
  if (key === "ArrowLeft") return tiles[place - 1];
  if (key === "Home") return tiles[0];
  if (key === "End") return tiles[tiles.length - 1];
  const here = tile.getBoundingClientRect();
  const down = key === "ArrowDown";
  let best, least = Infinity;
  for (const other of down ? tiles.slice(place + 1) : tiles.slice(0, place)) {
    const there = other.getBoundingClientRect();
    const away = down ? there.top - here.top : here.top - there.top;
    if (away < here.height / 2) continue; // the same line
    const distance = 100 * away + Math.abs(there.left - here.left);
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}

const KEYS = new Set(["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"]);

for (const gallery of document.querySelectorAll(".gallery")) {
  gallery.querySelectorAll(".tile").forEach((tile, place) => { tile.tabIndex = place ? -1 : 0; });
  gallery.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (tile) { focusOn(tile); show(tile); }
  });
  gallery.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || !KEYS.has(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = neighbour(tile, event.key);
    if (next) focusOn(next);
  });
}

zoom.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight") step(1);
  if (event.key === "ArrowLeft") step(-1);
});
zoom.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (event.target === zoom || (button && "close" in button.dataset)) zoom.close();
  else if (button) step(Number(button.dataset.step));
});
zoom.addEventListener("close", () => { if (shown) focusOn(shown); });
