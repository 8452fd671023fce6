export async function mapLimit<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const waiting = [...items];
  const worker = async (): Promise<void> => {
    while (waiting.length) {
      results.push(await work(waiting.shift() as T));
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}
