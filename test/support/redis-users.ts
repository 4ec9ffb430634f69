import { readFileSync } from 'node:fs'
import { asAdmin } from './redis-admin.ts'

/** The users of `deploy/redis/users.acl`: name and rules of each, as they are there. */
export const REDIS_USERS: ReadonlyMap<string, readonly string[]> = new Map(
  readFileSync(new URL('../../deploy/redis/users.acl', import.meta.url), 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const [, name, ...rules] = line.split(' ')
      return [name!, rules]
    }),
)

/** Gives the Redis at `url` one of these users and returns the URL by which that one comes; `keyPrefix` stands where `roomful:` does. */
export async function addRedisUser(
  url: string,
  name: 'roomful-control' | 'roomful-node',
  keyPrefix = 'roomful:',
): Promise<string> {
  const password = `password-of-${name}`
  const rules = REDIS_USERS.get(name)!.map((rule) =>
    rule.startsWith('>') ? `>${password}` : rule.replace(/^([~&])roomful:/, `$1${keyPrefix}`),
  )
  await asAdmin(url, (redis) => redis.call('ACL', 'SETUSER', name, 'reset', ...rules))
  return url.replace('://', `://${name}:${password}@`)
}
