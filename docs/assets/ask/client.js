/* Questions to Python in a worker, which is started with the first of them, and ended and started again when
 * an answer takes more than ten seconds, or more than the question may.
 *
 *     const ask = askPython(async () => ({ files, start, names }));
 *     JSON.parse(await ask(JSON.stringify(question)));
 *
 * `start` is the Python that defines `ask`, a function from text to text.
 */
const WORKER = new URL("worker.js", import.meta.url);
/** How long an answer may take. */
export const SECONDS = 10;
const MICROPYTHON = new URL("../run/micropython/micropython.mjs", import.meta.url);

/** Why a question has no answer: it was stopped. */
export class Stopped extends Error {}

export function askPython(prepare) {
  let worker = null;
  let ready = null;
  let waiting = new Map();
  let count = 0;
  let stopped = "";

  function stop(why) {
    stopped = why;
    if (worker) worker.terminate();
    for (const { reject } of waiting.values()) reject(new Stopped(why));
    worker = ready = null;
    waiting = new Map();
  }

  function send(message) {
    const id = ++count;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, ...message });
    });
  }

  function start() {
    const mine = (worker = new Worker(WORKER));
    worker.onmessage = ({ data }) => {
      const { resolve, reject } = waiting.get(data.id) || {};
      waiting.delete(data.id);
      if (data.error !== undefined) reject?.(new Error(data.error));
      else resolve?.(data.answer);
    };
    worker.onerror = () => stop("Python could not be started.");
    return prepare().then((what) => {
      if (worker !== mine) throw new Stopped(stopped);
      return send({ load: { micropython: MICROPYTHON.href, names: {}, ...what } });
    }).catch((error) => {
      if (worker === mine) stop(error.message);
      throw error;
    });
  }

  const warm = () => (ready = ready || start());

  async function ask(question, { seconds = SECONDS } = {}) {
    await warm();
    const timer = setTimeout(() => stop(`Stopped after ${seconds} seconds. Is there a loop that does not end, or more data than fits?`), 1000 * seconds);
    try {
      return await send({ question });
    } finally {
      clearTimeout(timer);
    }
  }

  ask.stop = stop;
  ask.warm = () => warm().catch(() => {});
  return ask;
}
