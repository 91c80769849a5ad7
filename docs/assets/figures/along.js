/* One figure goes along while the text scrolls: the first of the page, whose scene and time follow
 * the scene that is being read. The others are pictures, for paper and for readers without script. */
import { element } from "../element.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

for (const along of document.querySelectorAll(".along")) {
  const scenes = [...along.querySelectorAll(".scene")], figure = along.querySelector(".moving[data-figure]");
  const caption = figure.querySelector("figcaption"), captions = scenes.map((each) => each.querySelector("figcaption").innerHTML);
  const beside = element("div", { class: "along-figure" });
  const copy = figure.cloneNode(true);  // what stays in the first scene, for paper
  for (const each of [copy, ...copy.querySelectorAll("[id]")]) each.removeAttribute("id");
  delete copy.dataset.figure;
  copy.querySelector("script")?.remove();
  figure.replaceWith(copy);
  beside.append(figure);
  along.prepend(beside);
  along.classList.add("goes");

  let planned = false, shown = "";
  function follow() {
    planned = false;
    const narrow = getComputedStyle(along).display !== "grid";
    const reading = innerHeight * (narrow ? 0.7 : 0.42);
    const boxes = scenes.map((each) => each.getBoundingClientRect());
    const scene = Math.max(0, boxes.findLastIndex((box) => box.top < reading));
    // What a scene asks to predict, it shows once the question is passed.
    const question = scenes[scene].querySelector("details"), { bottom } = boxes[scene];
    const top = question ? question.getBoundingClientRect().bottom : boxes[scene].top;
    const way = Math.min(1, Math.max(0, (reading - top) / ((bottom - top) * 0.9)));
    const at = !still.matches ? Math.round(way * 100) : question && !way ? 0 : 100;
    if (shown === `${scene} ${at}`) return;
    shown = `${scene} ${at}`;
    caption.innerHTML = captions[scene];
    figure.dispatchEvent(new CustomEvent("state", { detail: { scene, at } }));
  }
  const plan = () => { if (!planned) { planned = true; requestAnimationFrame(follow); } };
  addEventListener("scroll", plan, { passive: true });
  addEventListener("resize", plan);
  new MutationObserver(() => { shown = ""; plan(); }).observe(figure, { attributeFilter: ["class"] });  // once it is live
  follow();
}
