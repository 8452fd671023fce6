export function parseQuery(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const decoded = (part: string): string => decodeURIComponent(part.replaceAll("+", " "));
  for (const part of text.replace(/^\?/, "").split("&")) {
    if (!part) continue;
    const at = part.indexOf("=");
    const name = decoded(at < 0 ? part : part.slice(0, at));
    const value = at < 0 ? "" : decoded(part.slice(at + 1));
    found.set(name, [...(found.get(name) ?? []), value]);
  }
  return found;
}
