/* What a reader has written into a cell: kept in this browser, and in a link that carries it. */
const MEMORY = "softmax-cells";

function all() {
  try {
    return JSON.parse(localStorage.getItem(MEMORY)) || {};
  } catch {
    return {};
  }
}

/** Keep the texts of a cell, or forget them if there are none. */
export function keep(name, texts) {
  const { [name]: _, ...others } = all();
  try {
    localStorage.setItem(MEMORY, JSON.stringify(texts ? { ...others, [name]: texts } : others));
  } catch { /* not allowed to, or full: nothing is kept */ }
}

const through = async (bytes, stream) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

/** The address of this page with the texts of a cell. */
export async function link(name, texts) {
  const bytes = await through(JSON.stringify(texts), new CompressionStream("deflate-raw"));
  const code = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${location.href.split("#")[0]}#run=${name}&code=${code}`;
}

/** Which cell the address has texts for. */
export const linked = () => location.hash.match(/^#run=([\w/-]+)&code=([\w-]+)$/);

/** The texts for a cell, and where they come from: the address, or this browser. */
export async function found(name) {
  const [, which, code] = linked() ?? [];
  if (which === name) {
    try {
      const bytes = Uint8Array.from(atob(code.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
      const text = new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
      return { texts: JSON.parse(text).map(String), from: "From a link" };
    } catch { /* a broken link has no code */ }
  }
  const texts = all()[name];
  return texts && { texts, from: "Your code from before" };
}
