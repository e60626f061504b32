// Fetches every file, of which `list.json` has the lengths, compares it byte by byte, and posts what
// it found to the address in the query. Then ranges of one file, and one that is not there.

const lengths = await (await fetch("/list.json")).json();
const protocol = (url) => performance.getEntriesByName(new URL(url, location).href).at(-1)?.nextHopProtocol;

function isFile(number, bytes) {
  const rightAt = (byte, at) => byte === ((number * 31 + at + (at >> 8) * 7) & 0xff);
  return bytes.length === lengths[number] && bytes.every(rightAt);
}

performance.setResourceTimingBufferSize(lengths.length + 100);
const since = performance.now();
const found = { right: 0, wrong: [], protocols: {}, ranges: [] };
let next = 0;
async function worker() {
  while (next < lengths.length) {
    const number = next++;
    const name = `/${number}.bin`;
    try {
      const answer = await fetch(name, { cache: "no-store" });
      const same = answer.status === 200 && isFile(number, new Uint8Array(await answer.arrayBuffer()));
      found.right += Number(same);
      if (!same) {
        found.wrong.push(name);
      }
    } catch (error) {
      found.wrong.push(`${name}: ${error}`);
    }
    const how = protocol(name) ?? "unknown";
    found.protocols[how] = (found.protocols[how] ?? 0) + 1;
  }
}
await Promise.all(Array.from({ length: 50 }, worker));
found.seconds = (performance.now() - since) / 1_000;

for (const range of ["bytes=0-9", "bytes=-5", "bytes=999999999-"]) {
  const answer = await fetch("/0.bin", { headers: { range }, cache: "no-store" });
  found.ranges.push([answer.status, (await answer.arrayBuffer()).byteLength]);
}
found.missing = (await fetch("/nothing")).status;

await fetch(new URLSearchParams(location.search).get("to"), { method: "POST", mode: "no-cors", body: JSON.stringify(found) });
