/* Runs cells: `run(request, says)` promises a reply, `stop()` ends whatever runs.
 *
 * Requests and replies are those of src/softmax_playground/small_triton/session.py:
 *
 *     run({ texts: ["x = Tensor([[1.0, 2.0]])\nshow(x)"], given: {} })
 *       .then(({ html, printed, tensors, steps, values, error }) => …)
 *
 * `given` are names of the library's modules, such as {merge: "triton_softmax.kernels.device.monoid"}.
 * A part of a run is timed first: before one of more than two seconds, `says` is told how many it takes here.
 * All cells of a page share one worker, so a run ends the one that goes on. A run that was stopped, or that used up the memory, has an error without a line. Nothing is loaded
 * before the first run or `warm()`.
 */
import { askPython, SECONDS, Stopped } from "../ask/client.js";
import { smallTriton } from "./small-triton.js";

const LONG = 2;
const START = `from small_triton import session
session.provide(library)
ask = session.answer`;

const ask = askPython(async () => {
  const { files, library } = await smallTriton();
  return { files, start: START, names: { library: JSON.stringify(library) } };
});

const failed = (message) => ({ html: "", printed: "", tensors: [], steps: [], values: [], error: { text: null, line: 0, message } });

export const warm = () => ask.warm();

let going = null;

export async function run(request, says = () => {}) {
  if (going) ask.stop("Stopped, because another cell runs.");
  going = request;
  try {
    const tried = JSON.parse(await ask(JSON.stringify({ ...request, rehearse: true })));
    const { seconds } = tried;
    if (seconds === undefined) return tried; // it was short, and is done
    if (seconds > LONG) says(seconds);
    return JSON.parse(await ask(JSON.stringify(request), { seconds: seconds > LONG ? SECONDS + 4 * seconds : SECONDS }));
  } catch (problem) {
    /* Stopped, or what Python could not catch itself: its memory or its stack is used up. */
    const message = problem.message.trim().split("\n").at(-1);
    if (!(problem instanceof Stopped)) ask.stop(message);
    return failed(message);
  } finally {
    if (going === request) going = null;
  }
}

export function stop() {
  ask.stop("Stopped.");
  ask.warm();
}
