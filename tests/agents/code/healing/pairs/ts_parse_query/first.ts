export function parseQuery(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const part of text.replace(/^\?/, "").split("&")) {
    if (!part) continue;
    const [name, value = ""] = part.split("=").map(decodeURIComponent);
    found.set(name, [...(found.get(name) ?? []), value]);
  }
  return found;
}
