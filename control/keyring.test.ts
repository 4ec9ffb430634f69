import { describe, expect, it } from 'vitest'
import { timestamp } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { importVerifyKey, isSigned, issueToken, readToken } from '../shared/tokens.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Keyring, WrongKeyring } from './keyring.ts'

const clock = new FakeClock()
const keyring = (secret: string | undefined) => new Keyring(secret, systemRandom)
const claims = {
  project_id: 'prj_one',
  issued_at: timestamp(clock.now()),
  expires_at: timestamp(clock.now() + 60_000),
}

describe('a keyring with a secret', () => {
  it('makes pairs whose private half rests sealed and signs for the public half', async () => {
    const pair = await keyring('one').createPair()
    expect(pair.public_key).toMatch(/^k4\.public\.[\w-]{43}$/)
    expect(pair.secret_key).toMatch(/^k4\.secret-wrap\.pie\./)
    const token = await issueToken(await keyring('one').signingKey(pair), claims)
    const verifyKey = await importVerifyKey(pair.public_key)
    expect(isSigned(readToken(token), verifyKey)).toBe(true)
  })

  it('opens nothing that was sealed under another, and goes on afterwards', async () => {
    const pair = await keyring('one').createPair()
    const other = keyring('two')
    await expect(other.signingKey(pair)).rejects.toThrow('wrapping key')
    await expect(keyring(undefined).signingKey(pair)).rejects.toThrow(WrongKeyring)
    await expect(other.signingKey(await other.createPair())).resolves.toBeDefined()
  })

  it('seals texts so that only the same secret and context open them', () => {
    const ring = keyring('one')
    const sealed = ring.seal('the secret of a key', 'a')
    expect(Buffer.from(sealed).toString('latin1')).not.toContain('secret')
    expect(keyring('one').unseal(sealed, 'a')).toBe('the secret of a key')
    expect(() => ring.unseal(sealed, 'b')).toThrow()
    expect(() => keyring('two').unseal(sealed, 'a')).toThrow()
  })
})

describe('a keyring without a secret', () => {
  it('stores pairs and texts in plain, and signs all the same', async () => {
    const ring = keyring(undefined)
    const pair = await ring.createPair()
    expect(pair.secret_key).toMatch(/^k4\.secret\./)
    await expect(ring.signingKey(pair)).resolves.toBeDefined()
    expect(ring.unseal(ring.seal('text', 'a'), 'a')).toBe('text')
  })
})

describe('a store', () => {
  it('is refused to a process with another secret, or with none', async () => {
    const { records } = memoryStore({ clock })
    await keyring('one').check(records)
    await keyring('one').check(records)
    await expect(keyring('two').check(records)).rejects.toThrow('another KEYRING_SECRET')
    await expect(keyring(undefined).check(records)).rejects.toThrow('set KEYRING_SECRET')
  })

  it('may go from no secret to one: old pairs stay usable, and none is no longer enough', async () => {
    const { records } = memoryStore({ clock })
    await keyring(undefined).check(records)
    const pair = await keyring(undefined).createPair()
    await keyring('one').check(records)
    await expect(keyring('one').signingKey(pair)).resolves.toBeDefined()
    await expect(keyring(undefined).check(records)).rejects.toThrow(WrongKeyring)
  })

  it('takes the first of two secrets that come at once', async () => {
    const { records } = memoryStore({ clock })
    const outcomes = await Promise.allSettled([keyring('one').check(records), keyring('two').check(records)])
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  })
})
