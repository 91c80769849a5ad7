/* Makes cells run when a reader comes near one. A page that is left above it loads nothing. */
const near = new IntersectionObserver(
  (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    near.disconnect();
    import("./cell.js");
  },
  { rootMargin: "400px" },
);

/* A link to a mistake opens its fold. */
function open() {
  const fold = document.querySelector(`details.run-cell[id="${CSS.escape(location.hash.slice(1))}"]`);
  if (fold) fold.open = true;
}
addEventListener("hashchange", open);
open();
if (location.hash.startsWith("#run=")) import("./cell.js");

for (const cell of document.querySelectorAll(".run-cell")) near.observe(cell);
