type Listener = (...values: unknown[]) => void;

export class Emitter {
  private readonly listeners = new Map<string, Listener[]>();

  on(name: string, listener: Listener): () => void {
    this.listeners.set(name, [...(this.listeners.get(name) ?? []), listener]);
    return () => {
      const known = this.listeners.get(name) ?? [];
      const at = known.indexOf(listener);
      if (at >= 0) this.listeners.set(name, known.filter((_, place) => place !== at));
    };
  }

  emit(name: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(name) ?? []) listener(...values);
  }
}
