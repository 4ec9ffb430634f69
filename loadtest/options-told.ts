import type { RunOptions } from './options.ts'

/** Every option as it holds, given or default, without secrets. */
export function optionsTold({
  values,
  target,
  threads,
  room_type,
  message,
  seed,
  limits,
}: RunOptions): Record<string, string> {
  const place =
    typeof target === 'number'
      ? { local: String(target) }
      : {
          ws: target.ws_urls.join(','),
          ...(target.credentials
            ? { project: target.credentials.project_id }
            : { control: target.control_url }),
          ...(target.metrics.length > 0 && { metrics: target.metrics.map(({ url }) => url).join(',') }),
        }
  return {
    ...Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)])),
    ...place,
    threads: String(threads),
    ...(message && { 'room-type': room_type, message: `${message.type}:${JSON.stringify(message.data)}` }),
    seed: String(seed),
    ...Object.fromEntries(
      limits.map(({ threshold, limit }) => [threshold.name.slice(2), `${limit}${threshold.unit}`]),
    ),
  }
}
