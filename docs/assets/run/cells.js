/* Makes cells run when a reader comes near one. A page that is left above it loads nothing. */
const near = new IntersectionObserver(
  (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    near.disconnect();
    import("./cell.js");
  },
  { rootMargin: "400px" },
);
for (const cell of document.querySelectorAll(".run-cell")) near.observe(cell);
