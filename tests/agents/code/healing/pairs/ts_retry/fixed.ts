export async function retry<T>(action: () => Promise<T>, attempts: number): Promise<T> {
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      return await action();
    } catch (error) {
      if (attempt === attempts) throw error;
    }
  }
  throw new Error("no attempts");
}
