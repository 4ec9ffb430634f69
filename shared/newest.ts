/** Sets an entry of a map as its newest one. If the map then has more than `max` entries, the oldest one is deleted. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > max) map.delete(oldest!)
}
