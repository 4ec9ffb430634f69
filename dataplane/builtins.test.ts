import { createContext, runInContext } from 'node:vm'
import { beforeEach, describe, expect, it } from 'vitest'
import { closeBuiltins } from './builtins.ts'

describe('JavaScript built-ins that are closed', () => {
  // Another realm, as nothing can open them again.
  let realm: object
  beforeEach(() => {
    realm = createContext({})
    closeBuiltins(runInContext('[Object, Array, Function, String, Number, Boolean]', realm))
  })
  const run = (code: string): unknown => runInContext(`'use strict'; ${code}`, realm)

  it.each([
    'Object.values({})["constructor"].count = 1',
    '[...[]]["__proto__"].count = 1',
    '({ ...{} })["constructor"]["prototype"].count = 1',
    '({})["hasOwnProperty"].call = 1',
    '"text"["constructor"].count = 1',
    '(1)["toFixed"].count = 1',
    '[]["constructor"]["from"].count = 1',
    '[]["filter"]["constructor"].count = 1',
  ])('take no property from code that was led to them: %s', (code) => {
    expect(() => run(code)).toThrow('object is not extensible')
  })

  it('serve code as before', () => {
    expect(
      run(
        'const a = { b: [1] }; a.toString = () => "a"; a.constructor = 1; class B extends Array {}; B.of(1).c = 1; String(a)',
      ),
    ).toBe('a')
  })
})
