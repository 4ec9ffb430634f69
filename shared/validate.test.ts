import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import {
  CreateKey,
  CreateProject,
  IssueToken,
  KickPlayer,
  PageQuery,
  ReserveSeats,
  SubPath,
} from '../control/schemas.ts'
import { Problem } from './problem.ts'
import { type ObjectSchema, readExactJson, readJson, validate } from './validate.ts'

function refusal(schema: ObjectSchema<unknown>, value: unknown): Problem {
  try {
    validate(schema, value, 'body')
  } catch (error) {
    if (error instanceof Problem) return error
  }
  throw new Error('expected a Problem')
}

describe('a body', () => {
  it('is returned with its defaults', () => {
    expect(validate(IssueToken, { project_id: 'prj_a' }, 'body')).toEqual({
      project_id: 'prj_a',
      ttl_seconds: 300,
    })
  })

  it.each([
    ['a field that is missing', {}, 'name', 'is required'],
    ['a field of the wrong kind', { name: 5 }, 'name', 'must be text of 1 to 100 characters; got 5'],
    ['a text that is too short', { name: '' }, 'name', 'must be text of 1 to 100 characters; got ""'],
    ['null where text belongs', { name: null }, 'name', 'must be text of 1 to 100 characters; got null'],
    ['no object at all', [1], '', 'the body must be a JSON object'],
  ])('is refused for %s, and told what would be right', (_what, value, path, message) => {
    const problem = refusal(CreateProject, value)
    expect(problem.code).toBe('invalid_request')
    expect(problem.errors).toEqual([{ path, message }])
  })

  it('is refused for every unknown field, by name, also for names that all objects have', () => {
    const body = JSON.parse('{"name":"a","nme":1,"constructor":2,"__proto__":{"x":1}}')
    expect(refusal(CreateProject, body).errors?.map(({ path }) => path)).toEqual([
      'nme',
      'constructor',
      '__proto__',
    ])
    expect(refusal(CreateProject, body).message).toBe(
      'nme: unknown field; known fields: name (and 2 more, see errors)',
    )
  })

  it('counts characters, not code units', () => {
    expect(validate(CreateProject, { name: '🎲'.repeat(100) }, 'body').name).toHaveLength(200)
    expect(refusal(CreateProject, { name: '🎲'.repeat(101) }).errors).toHaveLength(1)
  })

  it('is refused for a lone surrogate in any text, with that reason', () => {
    const half = 'Ann \ud83d'
    const message = (path: string, body: object, schema: ObjectSchema<unknown> = IssueToken) => {
      const { errors } = refusal(schema, body)
      expect(errors?.map((error) => error.path)).toEqual([path])
      return errors![0]!.message
    }
    const bodies = { sub: half, aud: half, rooms: [`arena:${half}`] }
    for (const [name, value] of Object.entries(bodies))
      expect(message(name === 'rooms' ? 'rooms.0' : name, { project_id: 'prj_a', [name]: value })).toMatch(
        /^must not have half a surrogate pair, which no UTF-8 can carry; got /,
      )
    for (const data of [{ name: half }, { [half]: 1 }, { tags: [half] }])
      expect(message('data', { project_id: 'prj_a', data })).toMatch(/must be plain JSON: .*surrogate/)
    for (const schema of [CreateProject, CreateKey])
      expect(message('name', { name: half }, schema)).toMatch(/half a surrogate pair/)
    expect(validate(IssueToken, { project_id: 'prj_a', sub: 'Ann 🎲' }, 'body').sub).toBe('Ann 🎲')
  })

  it('is refused with a player whom the call that revokes tokens could not name', () => {
    for (const sub of ['.', '..'])
      expect(refusal(IssueToken, { project_id: 'prj_a', sub }).errors).toMatchObject([
        { path: 'sub', message: expect.stringContaining('must not be . or ..') },
      ])
    expect(validate(IssueToken, { project_id: 'prj_a', sub: '...' }, 'body').sub).toBe('...')
  })

  it('is refused with a player whose name every object has, in each call with a sub', () => {
    for (const sub of Object.getOwnPropertyNames(Object.prototype)) {
      const bodies = [
        refusal(IssueToken, { project_id: 'prj_a', sub }),
        refusal(ReserveSeats, { subs: [sub], seconds: 30 }),
        refusal(KickPlayer, { sub }),
        refusal(SubPath, { sub }),
      ]
      for (const { message } of bodies) expect(message).toContain('a name that every object has')
    }
    expect(validate(IssueToken, { project_id: 'prj_a', sub: 'toStrings' }, 'body').sub).toBe('toStrings')
  })

  it('names the place of an error in a list, once for each place', () => {
    const errors = refusal(IssueToken, {
      project_id: 'prj_a',
      rooms: ['arena', ':x', 'chess:', 'a:b:c'],
    }).errors
    expect(errors?.map(({ path }) => path)).toEqual(['rooms.1', 'rooms.2'])
  })

  it('is quoted only in part in the error', () => {
    const problem = refusal(v.strictObject({ a: v.number('must be a number') }), { a: 'x'.repeat(5000) })
    expect(problem.message.length).toBeLessThan(200)
  })
})

describe('a query', () => {
  const refused = (query: object) => {
    try {
      validate(PageQuery, query, 'query')
    } catch (error) {
      if (error instanceof Problem) return error.errors
    }
    throw new Error('expected a Problem')
  }

  it('is refused for every unknown parameter, by name', () => {
    expect(refused({ limit: '5', pretty: '1' })).toEqual([
      { path: 'pretty', message: 'unknown parameter; known parameters: limit, cursor' },
    ])
  })

  it('is refused for an invalid cursor, which the error quotes as it was sent', () => {
    expect(refused({ cursor: 'abc' })).toEqual([
      { path: 'cursor', message: 'must be the next_cursor of an earlier answer; got "abc"' },
    ])
  })
})

describe('the body of a request', () => {
  it('is refused with 415 if it is compressed', async () => {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
    const request = new Request('http://localhost/', { method: 'POST', headers, body: 'gzipped' })
    await expect(readJson(request)).rejects.toMatchObject({
      code: 'unsupported_media_type',
      message: expect.stringContaining('encoded as gzip'),
    })
  })

  const read = (body: string) => {
    const headers = { 'content-type': 'application/json' }
    return readExactJson(new Request('http://localhost/', { method: 'POST', headers, body }))
  }

  it.each(['9007199254740993', '-9007199254740993', '9007199254740992', '1000000000000000000000000'])(
    'is refused with an integer that would be rounded: %s',
    async (integer) => {
      await expect(read(`{"gold":{"of":[1,${integer}]}}`)).rejects.toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining(
          `${integer} is beyond 2^53 - 1 and would be rounded; send it as a string`,
        ),
      })
    },
  )

  it('keeps large integers that are exact, in texts, or written as floating-point numbers', async () => {
    const body = '{"a":9007199254740991,"b":"9007199254740993","c":9007199254740993.5,"d":1e300}'
    expect(await read(body)).toEqual(JSON.parse(body))
  })
})

describe('a ttl', () => {
  it.each([9, 86_401, 60.5, -60, '60', null, true, Number.MAX_VALUE])('of %j is refused', (ttlSeconds) => {
    expect(refusal(IssueToken, { project_id: 'prj_a', ttl_seconds: ttlSeconds }).errors?.[0]).toMatchObject({
      path: 'ttl_seconds',
      message: expect.stringContaining('must be a whole number from 10 to 86400'),
    })
  })

  it.each([10, 300, 86_400])('of %d is unchanged', (ttlSeconds) => {
    expect(validate(IssueToken, { project_id: 'prj_a', ttl_seconds: ttlSeconds }, 'body').ttl_seconds).toBe(
      ttlSeconds,
    )
  })
})
