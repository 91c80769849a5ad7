// A link to an equation shows the formula while it is pointed at or focused; the formula waits in
// a <template> of the page. Without this script the link still leads to the equation.
(() => {
  const tip = document.createElement("div");
  tip.id = "formula-tip";
  tip.className = "formula-tip";
  tip.setAttribute("role", "tooltip");
  tip.popover = "manual";
  let link = null;
  let leaving = 0;

  const hide = () => {
    clearTimeout(leaving);
    link?.removeAttribute("aria-describedby");
    link = null;
    if (tip.isConnected && tip.matches(":popover-open")) tip.hidePopover();
  };

  const show = (next) => {
    clearTimeout(leaving);
    const formula = document.getElementById(`formula-${next.dataset.eq}`);
    if (next === link || !formula) return;
    hide();
    link = next;
    tip.replaceChildren(formula.content.cloneNode(true));
    document.body.append(tip);
    tip.showPopover();
    link.setAttribute("aria-describedby", tip.id);
    place();
  };

  const place = () => {
    if (!link) return;
    const at = link.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const below = at.bottom + 6;
    const above = at.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(8, Math.min(room, at.right - tip.offsetWidth))}px`;
    tip.style.top = `${below + tip.offsetHeight > innerHeight && above > 0 ? above : below}px`;
  };

  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(hide, 150);
  };

  const of = (event) => event.target.closest?.("a.eq");
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    if (tip.contains(event.target)) clearTimeout(leaving);
    else if (of(event)) show(of(event));
    else if (link) leave();
  });
  document.addEventListener("focusin", (event) => {
    if (of(event)?.matches(":focus-visible")) show(of(event));
  });
  document.addEventListener("focusout", (event) => of(event) && hide());
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", place, { passive: true });
})();
