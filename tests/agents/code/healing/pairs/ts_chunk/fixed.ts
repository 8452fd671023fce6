export function chunk<T>(items: readonly T[], size: number): T[][] {
  if (size < 1) throw new RangeError("size must be at least 1");
  const chunks: T[][] = [];
  for (let at = 0; at < items.length; at += size) {
    chunks.push(items.slice(at, at + size));
  }
  return chunks;
}
