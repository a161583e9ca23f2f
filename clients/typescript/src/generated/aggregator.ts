// Made by `npm run generate` from spec/; do not edit.

export interface paths {
    "/api/v1/quote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The best route for a swap, with its transaction payload */
        get: operations["getQuote"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/quote.svg": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The route of a quote as a picture, for light and dark pages */
        get: operations["drawQuote"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/pair-config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether a pair can be traded, with decimals and a minimum */
        get: operations["getPairConfig"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/price-ladder": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The answers for several inputs in one call */
        get: operations["getPriceLadder"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/batch-quote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Many small inputs to one output */
        post: operations["postBatchQuote"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/multi-swap": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Many inputs to one output, ready to be sent */
        post: operations["postMultiSwap"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/quote/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The same as /api/v1/quote, pushed as server-sent events whenever it has changed */
        get: operations["streamQuotes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Tokens with prices and liquidity */
        get: operations["getTokens"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/pools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Pools with their reserves */
        get: operations["getPools"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/prices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Prices of tokens through the market */
        get: operations["getPrices"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Contract, limits and defaults */
        get: operations["getConfig"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/referrals/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What the contract charges */
        get: operations["getReferral"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether quotes are served, and on what */
        get: operations["getHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * QuoteResponse
         * @description The answer of `/api/v1/quote`. Fields that do not apply are left out; `optimalityGap` may be null.
         */
        QuoteResponse: {
            /**
             * @description forward where the input is given, reverse where the output is.
             * @example forward
             */
            mode: string;
            /**
             * @description Token sold, an identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            from: string;
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Input, in smallest units of the token sold.
             * @example 1000000000000000000
             */
            amountIn: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Input in whole tokens, for people to read.
             * @example 1
             */
            amountInShort: number;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description Least output, in smallest units: the contract reverts below it.
             * @example 39472521
             */
            amountOutMin: string;
            /**
             * @description Least output in whole tokens.
             * @example 39.472521
             */
            amountOutMinShort: number;
            /**
             * @description Accepted loss against the quote, a fraction from 0 to less than 1.
             * @example 0.01
             */
            slippage: number;
            /**
             * @description 1 - executed rate / spot rate of the same route, a fraction.
             * @example 0.0021
             */
            priceImpact: number;
            /**
             * @description Whole output tokens per whole input token.
             * @example 39.871234
             */
            rate: number;
            /**
             * @description Whole input tokens per whole output token.
             * @example 0.0250807
             */
            rateInverse: number;
            /**
             * @description Decimals of the input token.
             * @example 18
             */
            decimalsIn: number;
            /**
             * @description Decimals of the output token.
             * @example 6
             */
            decimalsOut: number;
            /**
             * @description How the input is split: greedy, lagrangian or hybrid.
             * @example hybrid
             */
            algorithm: string;
            /**
             * @description The transaction's data in base64.
             * @example eG9AMDVkNGFjODI3NDM4ODkwN0BmZUBA
             */
            txData: string;
            /**
             * @description Gas limit to give the transaction, in gas units.
             * @example 24500000
             */
            estimatedGasLimit: number;
            /**
             * @description Built-in calls of the transaction; the network allows 100.
             * @example 9
             */
            estimatedBuiltinCalls: number;
            /**
             * @description The contract's own fee in basis points of the output.
             * @example 0
             */
            feeBps: number;
            /**
             * @description The contract's own fee, in smallest units of the output; 0 without a referral.
             * @example 0
             */
            feeAmount: string;
            /**
             * @description The same in whole tokens.
             * @example 0
             */
            feeAmountShort: number;
            /** @description What each swap's pool withholds, in order of execution. */
            poolFees: components["schemas"]["PoolFee"][];
            /**
             * @description At most this fraction is missing to the best split there is; null if not known.
             * @example 0.0000015
             */
            optimalityGap: number | null;
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
            /**
             * @description What the input is worth in dollars, by the market's prices; null without one.
             * @example 40
             */
            amountInUsd: number | null;
            /**
             * @description What the output is worth in dollars, by the market's prices; null without one.
             * @example 39.87
             */
            amountOutUsd: number | null;
            /**
             * @description What the least output is worth in dollars; null without a price.
             * @example 39.47
             */
            amountOutMinUsd: number | null;
            /**
             * @description What the contract's fee is worth in dollars; null without a price.
             * @example 0.14
             */
            feeAmountUsd: number | null;
            /**
             * @description Reverse quotes: most that the swap costs, in smallest units of the input.
             * @example 1000000000000000000
             */
            amountInMax?: string;
            /**
             * @description The same in whole tokens.
             * @example 1
             */
            amountInMaxShort?: number;
            /**
             * @description Parameters that were given and have no effect.
             * @example [
             *       "maxSplit"
             *     ]
             */
            ignoredParameters?: string[];
            /**
             * @description Arbitrage: output less input, in smallest units.
             * @example 1200000000000000
             */
            profit?: string;
            /**
             * @description Arbitrage: the same in whole tokens.
             * @example 0.0012
             */
            profitShort?: number;
            /** @description Ways from input to output, the largest first; amounts and shares add up. */
            paths?: components["schemas"]["PathPart"][];
            /** @description With a sender: the transaction, to be signed. */
            transaction?: components["schemas"]["UnsignedTransaction"];
            /** @description With `simulate`: what a gateway says that the transaction would do. */
            simulation?: components["schemas"]["Simulation"];
            /**
             * @description True: the search was cut short, with more time there may be a better route. Else left out.
             * @example true
             */
            searchCut?: boolean;
        };
        /**
         * PoolFee
         * @description What one pool withholds: fee amount in `token`, of the trade in that pool.
         */
        PoolFee: {
            /**
             * @description xExchange, OneDex, AshSwap, JEX, XOXNO, LXOXNO, Hatom, or wrapper.
             * @example xExchange
             */
            dex: string;
            /**
             * @description Address of the contract, bech32. OneDex has one for all pairs.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            address: string;
            /**
             * @description Token identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            token: string;
            /**
             * @description What the pool withholds, in smallest units of `token`.
             * @example 3000000000000000
             */
            amount: string;
            /**
             * @description The amount in whole tokens; 0 where the token or amount is none.
             * @example 1
             */
            amountShort: number;
        };
        /**
         * SnapshotInfo
         * @description The market state the answer was computed on.
         */
        SnapshotInfo: {
            /**
             * @description Id of the market state: equal ids, equal answers.
             * @example d8f5a321090f1785
             */
            id: string;
            /**
             * @description Height of the block that the market is of.
             * @example 21000000
             */
            blockNonce: number;
            /**
             * @description Time of the block, Unix seconds.
             * @example 1764000000
             */
            timestamp: number;
        };
        /**
         * PathPart
         * @description One path: its part of the input in parts per million (they sum to 1 000 000) and its swaps.
         */
        PathPart: {
            /**
             * @description Input, in smallest units of the token sold.
             * @example 1000000000000000000
             */
            amountIn: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Input in whole tokens, for people to read.
             * @example 1
             */
            amountInShort: number;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description Part of the input on this path, in millionths; all paths sum to 1 000 000.
             * @example 640000
             */
            splitPpm: number;
            /** @description Pools (and the wrapper) in order of execution. */
            swaps: components["schemas"]["SwapHop"][];
        };
        /**
         * SwapHop
         * @description One pool (or the wrapper) on a path. `pairId` for OneDex only.
         */
        SwapHop: {
            /**
             * @description xExchange, OneDex, AshSwap, JEX, XOXNO, LXOXNO, Hatom, or wrapper.
             * @example xExchange
             */
            dex: string;
            /**
             * @description Address of the contract, bech32. OneDex has one for all pairs.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            address: string;
            /**
             * @description Token sold, an identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            from: string;
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Input, in smallest units of the token sold.
             * @example 1000000000000000000
             */
            amountIn: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Input in whole tokens, for people to read.
             * @example 1
             */
            amountInShort: number;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description OneDex: number of the pair.
             * @default null
             * @example 9
             */
            pairId?: number | null;
        };
        /**
         * UnsignedTransaction
         * @description A transaction that only lacks its signature, and its nonce where that is not known.
         */
        UnsignedTransaction: {
            /**
             * @description Next nonce of the sender; left out, or counted from 0 in batches, where it is not known.
             * @example 41
             */
            nonce?: number;
            /**
             * @description Who sends the transaction, bech32.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            sender: string;
            /**
             * @description Receiver of the transaction, bech32.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            receiver: string;
            /**
             * @description EGLD sent along, in atomic units (10^-18).
             * @example 0
             */
            value: string;
            /**
             * @description The call, in base64.
             * @example eG9AMDVkNGFjODI3NDM4ODkwN0BmZUBA
             */
            data: string;
            /**
             * @description Gas limit, in gas units.
             * @example 24500000
             */
            gasLimit: number;
            /**
             * @description Gas price, in atomic units of EGLD per gas unit.
             * @example 1000000000
             */
            gasPrice: number;
            /**
             * @description Chain id of the network; 1 is mainnet.
             * @example 1
             */
            chainID: string;
            /**
             * @description Version of the transaction format.
             * @default 2
             * @example 2
             */
            version?: number;
            /**
             * @description The same as `chainID`, for clients that read this spelling.
             * @example 1
             */
            chainId: string;
        };
        /**
         * Simulation
         * @description What a gateway says that a transaction would do now. `status`: `success`, `fail`, or `unknown` without a word.
         */
        Simulation: {
            /**
             * @description success, fail, or unknown where the gateway told nothing.
             * @example success
             */
            status: string;
            /**
             * @description Why it fails, or why nothing is known.
             * @example execution failed
             */
            reason?: string;
            /**
             * @description Gas the transaction would use, in gas units; left out where it is not known.
             * @example 16200000
             */
            gasUsed?: number;
        };
        /**
         * PairConfig
         * @description The answer of `/api/v1/pair-config`.
         */
        PairConfig: {
            /**
             * @description Token sold, an identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            from: string;
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Whether the pair can be traded.
             * @example true
             */
            supported: boolean;
            /**
             * @description Decimals of the input token.
             * @example 18
             */
            decimalsIn?: number;
            /**
             * @description Decimals of the output token.
             * @example 6
             */
            decimalsOut?: number;
            /**
             * @description Least input that executes, in smallest units.
             * @example 1000000000
             */
            minAmountIn?: string;
            /**
             * @description The same in whole tokens.
             * @example 1e-9
             */
            minAmountInShort?: number;
            /**
             * @description Why the pair is not supported.
             * @example no path between tokens
             */
            error?: string;
        };
        /**
         * LadderResponse
         * @description The answer of `/api/v1/price-ladder`, one step per amount in the order asked.
         */
        LadderResponse: {
            /**
             * @description Token sold, an identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            from: string;
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /** @description One per amount, in the order asked. */
            steps: components["schemas"]["LadderStep"][];
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
            /**
             * @description Parameters that were given and have no effect.
             * @example [
             *       "maxSplit"
             *     ]
             */
            ignoredParameters?: string[];
        };
        /**
         * LadderStep
         * @description One amount of a price ladder: its answer, or the error it would get.
         */
        LadderStep: {
            /**
             * @description Input, in smallest units of the token sold.
             * @example 1000000000000000000
             */
            amountIn: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @default null
             * @example 39871234
             */
            amountOut?: string | null;
            /**
             * @description Whole output tokens per whole input token.
             * @default null
             * @example 39.871234
             */
            rate?: number | null;
            /**
             * @description 1 - executed rate / spot rate of the same route, a fraction.
             * @default null
             * @example 0.0021
             */
            priceImpact?: number | null;
            /**
             * @description At most this fraction is missing to the best split there is; null if not known.
             * @default null
             * @example 0.0000015
             */
            optimalityGap?: number | null;
            /**
             * @description True: the search was cut short, with more time there may be a better route. Else left out.
             * @default false
             * @example true
             */
            searchCut?: boolean;
            /**
             * @description What is wrong; clients match a part of the text.
             * @default null
             * @example unknown token_in 'INVALID-123456'
             */
            error?: string | null;
        };
        /**
         * BatchRequest
         * @description The body of POST /api/v1/batch-quote.
         */
        BatchRequest: {
            /** @description Tokens to sell, each with its amount. */
            inputs: components["schemas"]["BatchItem"][];
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Accepted loss against the quote, a fraction from 0 to less than 1.
             * @default null
             * @example 0.01
             */
            slippage?: string | number | null;
            /**
             * @description Most pools on one path; 4 if not given.
             * @default null
             * @example 4
             */
            maxHops?: number | null;
            /**
             * @description Most paths of an input; 2 if not given, and no more.
             * @default null
             * @example 2
             */
            maxSplits?: number | null;
            /**
             * @description Most pools of an input; 8 if not given, and no more.
             * @default null
             * @example 8
             */
            maxPools?: number | null;
            /**
             * @description Most built-in calls of a transaction.
             * @default null
             * @example 100
             */
            maxBuiltinCalls?: number | null;
            /**
             * @description Largest price impact of an input, a fraction; one with more is not sold.
             * @default null
             * @example 0.05
             */
            maxPriceImpact?: string | number | null;
            /**
             * @description Oldest market to answer from, in milliseconds since it was last seen; older is a 503.
             * @default null
             * @example 10000
             */
            maxAgeMs?: number | null;
            /**
             * @description Referral that the contract credits; 0 is none.
             * @default null
             * @example 0
             */
            referralId?: number | null;
            /**
             * @description Only these, in capitals or not: a list, or comma-separated.
             * @default null
             * @example [
             *       "xExchange",
             *       "OneDex"
             *     ]
             */
            includeExchanges?: string[] | string | null;
            /**
             * @description None of these.
             * @default null
             * @example [
             *       "JEX"
             *     ]
             */
            excludeExchanges?: string[] | string | null;
            /**
             * @description Only these pool ids, at most 64: a list, or comma-separated.
             * @default null
             * @example [
             *       "x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
             *     ]
             */
            includePools?: string[] | string | null;
            /**
             * @description None of these pool ids.
             * @default null
             * @example [
             *       "x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
             *     ]
             */
            excludePools?: string[] | string | null;
        };
        /**
         * BatchItem
         * @description One input of a batch request: a token and an amount in smallest units.
         */
        BatchItem: {
            /**
             * @description Token identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            token: string;
            /**
             * @description Smallest units of the token, a whole number as a decimal string.
             * @example 1000000000000000000
             */
            amount: string;
        };
        /**
         * BatchResponse
         * @description The answer of POST /api/v1/batch-quote.
         */
        BatchResponse: {
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /** @description One transaction each, quoted on the pools as those before it leave them. */
            batches: components["schemas"]["Batch"][];
            /** @description Inputs that are in no batch, and why. */
            failedTokens: components["schemas"]["FailedToken"][];
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
            /**
             * @description True: the search was cut short, with more time there may be a better route. Else left out.
             * @example true
             */
            searchCut?: boolean;
            /**
             * @description Parameters that were given and have no effect.
             * @example [
             *       "maxSplit"
             *     ]
             */
            ignoredParameters?: string[];
        };
        /**
         * Batch
         * @description One transaction of a batch quote; its receiver is the sender itself (a multi-transfer).
         */
        Batch: {
            /**
             * @description Position of the batch, from 0; batches are sent in this order.
             * @example 0
             */
            batchIndex: number;
            /** @description Tokens to sell, each with its amount. */
            inputs: components["schemas"]["BatchInput"][];
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description Least output, in smallest units: the contract reverts below it.
             * @example 39472521
             */
            amountOutMin: string;
            /** @description What each input becomes, in the order of `inputs`. */
            routes: components["schemas"]["BatchRoute"][];
            /**
             * @description The transaction's data in base64.
             * @example eG9AMDVkNGFjODI3NDM4ODkwN0BmZUBA
             */
            txData: string;
            /**
             * @description Gas limit to give the transaction, in gas units.
             * @example 24500000
             */
            estimatedGasLimit: number;
            /**
             * @description Built-in calls of the transaction; the network allows 100.
             * @example 9
             */
            estimatedBuiltinCalls: number;
        };
        /**
         * BatchInput
         * @description One input that a batch sells.
         */
        BatchInput: {
            /**
             * @description Token identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            token: string;
            /**
             * @description Smallest units of the token, a whole number as a decimal string.
             * @example 1000000000000000000
             */
            amount: string;
            /**
             * @description The amount in whole tokens; 0 where the token or amount is none.
             * @example 1
             */
            amountShort: number;
        };
        /**
         * BatchRoute
         * @description The swaps that one input takes, in execution order.
         */
        BatchRoute: {
            /**
             * @description Token identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            token: string;
            /** @description Pools (and the wrapper) in order of execution. */
            swaps: components["schemas"]["SwapHop"][];
        };
        /**
         * FailedToken
         * @description An input that is not sold, and why: `unknown_token`, `invalid_amount`, `zero_liquidity`, …
         */
        FailedToken: {
            /**
             * @description Token identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            token: string;
            /**
             * @description Smallest units of the token, a whole number as a decimal string.
             * @example 1000000000000000000
             */
            amount: string;
            /**
             * @description The amount in whole tokens; 0 where the token or amount is none.
             * @example 1
             */
            amountShort: number;
            /**
             * @description Why: a word such as no_path, zero_liquidity, unknown_token, invalid_amount.
             * @example zero_liquidity
             */
            reason: string;
        };
        /**
         * MultiSwapRequest
         * @description The body of POST /api/v1/multi-swap.
         */
        MultiSwapRequest: {
            /** @description Tokens to sell, each with its amount. */
            inputs: components["schemas"]["BatchItem"][];
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Accepted loss against the quote, a fraction from 0 to less than 1.
             * @default null
             * @example 0.01
             */
            slippage?: string | number | null;
            /**
             * @description Most pools on one path; 4 if not given.
             * @default null
             * @example 4
             */
            maxHops?: number | null;
            /**
             * @description Most paths of an input; 2 if not given, and no more.
             * @default null
             * @example 2
             */
            maxSplits?: number | null;
            /**
             * @description Most pools of an input; 8 if not given, and no more.
             * @default null
             * @example 8
             */
            maxPools?: number | null;
            /**
             * @description Most built-in calls of a transaction.
             * @default null
             * @example 100
             */
            maxBuiltinCalls?: number | null;
            /**
             * @description Largest price impact of an input, a fraction; one with more is not sold.
             * @default null
             * @example 0.05
             */
            maxPriceImpact?: string | number | null;
            /**
             * @description Oldest market to answer from, in milliseconds since it was last seen; older is a 503.
             * @default null
             * @example 10000
             */
            maxAgeMs?: number | null;
            /**
             * @description Referral that the contract credits; 0 is none.
             * @default null
             * @example 0
             */
            referralId?: number | null;
            /**
             * @description Only these, in capitals or not: a list, or comma-separated.
             * @default null
             * @example [
             *       "xExchange",
             *       "OneDex"
             *     ]
             */
            includeExchanges?: string[] | string | null;
            /**
             * @description None of these.
             * @default null
             * @example [
             *       "JEX"
             *     ]
             */
            excludeExchanges?: string[] | string | null;
            /**
             * @description Only these pool ids, at most 64: a list, or comma-separated.
             * @default null
             * @example [
             *       "x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
             *     ]
             */
            includePools?: string[] | string | null;
            /**
             * @description None of these pool ids.
             * @default null
             * @example [
             *       "x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
             *     ]
             */
            excludePools?: string[] | string | null;
            /**
             * @description True: inputs that cannot be sold are left out and named. False: they refuse the request.
             * @default true
             * @example true
             */
            dust_mode?: boolean | null;
            /**
             * @description Who sends the transactions, bech32; adds `transaction`.
             * @default null
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            sender?: string | null;
            /**
             * @description Gas price of the transactions.
             * @default null
             * @example 1000000000
             */
            gasPrice?: number | null;
        };
        /**
         * MultiSwapResponse
         * @description The answer of POST /api/v1/multi-swap. With a single batch its `inputs`, `routes`, `txData` and `transaction`
         *         are here as well.
         */
        MultiSwapResponse: {
            /**
             * @description Token bought, an identifier, or EGLD.
             * @example USDC-c76f1f
             */
            to: string;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description Least output, in smallest units: the contract reverts below it.
             * @example 39472521
             */
            amountOutMin: string;
            /**
             * @description Least output in whole tokens.
             * @example 39.472521
             */
            amountOutMinShort: number;
            /**
             * @description Accepted loss against the quote, a fraction from 0 to less than 1.
             * @example 0.01
             */
            slippage: number;
            /**
             * @description The contract's own fee in basis points of the output.
             * @example 0
             */
            feeBps: number;
            /**
             * @description The contract's own fee, in smallest units of the output; 0 without a referral.
             * @example 0
             */
            feeAmount: string;
            /**
             * @description The same in whole tokens.
             * @example 0
             */
            feeAmountShort: number;
            /** @description Inputs that are in no batch, and why. */
            failedTokens: components["schemas"]["FailedToken"][];
            /** @description One transaction each, quoted on the pools as those before it leave them. */
            batches: components["schemas"]["SwapBatch"][];
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
            /**
             * @description True: the search was cut short, with more time there may be a better route. Else left out.
             * @example true
             */
            searchCut?: boolean;
            /**
             * @description Parameters that were given and have no effect.
             * @example [
             *       "maxSplit"
             *     ]
             */
            ignoredParameters?: string[];
            /** @description Tokens to sell, each with its amount. */
            inputs?: components["schemas"]["BatchInput"][];
            /** @description What each input becomes, in the order of `inputs`. */
            routes?: components["schemas"]["SwapRoute"][];
            /**
             * @description Of a single batch: its data, plain text.
             * @example MultiESDTNFTTransfer@000000000000000005000d52a80426b28dcaede1b6f8872b30aa3b688d12eddf@01@…
             */
            txData?: string;
            /** @description With a sender: the transaction, to be signed. */
            transaction?: components["schemas"]["UnsignedTransaction"];
        };
        /**
         * SwapBatch
         * @description One transaction of a multi-swap. `txData` is plain text, `transaction.data` the same in base64.
         */
        SwapBatch: {
            /**
             * @description Position of the batch, from 0; batches are sent in this order.
             * @example 0
             */
            batchIndex: number;
            /** @description Tokens to sell, each with its amount. */
            inputs: components["schemas"]["BatchInput"][];
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /**
             * @description Least output, in smallest units: the contract reverts below it.
             * @example 39472521
             */
            amountOutMin: string;
            /**
             * @description Least output in whole tokens.
             * @example 39.472521
             */
            amountOutMinShort: number;
            /** @description What each input becomes, in the order of `inputs`. */
            routes: components["schemas"]["SwapRoute"][];
            /**
             * @description The transaction's data, plain text.
             * @example MultiESDTNFTTransfer@000000000000000005000d52a80426b28dcaede1b6f8872b30aa3b688d12eddf@01@…
             */
            txData: string;
            /**
             * @description Gas limit to give the transaction, in gas units.
             * @example 24500000
             */
            estimatedGasLimit: number;
            /**
             * @description Built-in calls of the transaction; the network allows 100.
             * @example 9
             */
            estimatedBuiltinCalls: number;
            /** @description With a sender: the transaction, to be signed. */
            transaction?: components["schemas"]["UnsignedTransaction"];
        };
        /**
         * SwapRoute
         * @description What one input of a multi-swap becomes, and on which paths.
         */
        SwapRoute: {
            /**
             * @description Token sold, an identifier, or EGLD.
             * @example WEGLD-bd4d79
             */
            from: string;
            /**
             * @description Input, in smallest units of the token sold.
             * @example 1000000000000000000
             */
            amountIn: string;
            /**
             * @description Input in whole tokens, for people to read.
             * @example 1
             */
            amountInShort: number;
            /**
             * @description Output, in smallest units of the token bought, fees taken.
             * @example 39871234
             */
            amountOut: string;
            /**
             * @description Output in whole tokens, for people to read.
             * @example 39.871234
             */
            amountOutShort: number;
            /** @description Ways from input to output, the largest first; amounts and shares add up. */
            paths: components["schemas"]["PathPart"][];
        };
        /**
         * TokensResponse
         * @description The answer of `/api/v1/tokens`: a page of those that match, those with most liquidity first.
         */
        TokensResponse: {
            /** @description The page. */
            tokens: components["schemas"]["TokenRow"][];
            /**
             * @description Rows that match, on all pages.
             * @example 61
             */
            total: number;
            /**
             * @description Rows before the page.
             * @example 0
             */
            offset: number;
            /**
             * @description Most rows on the page.
             * @example 100
             */
            limit: number;
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
        };
        /**
         * TokenRow
         * @description A token. Prices are of a whole token; they and liquidity are null where no pool leads to the native coin.
         */
        TokenRow: {
            /**
             * @description Token identifier; EGLD is the native coin.
             * @example USDC-c76f1f
             */
            identifier: string;
            /**
             * @description Name of the token; empty where nobody has told it.
             * @example WrappedUSDC
             */
            name: string;
            /**
             * @description Ticker of the token.
             * @example USDC
             */
            ticker: string;
            /**
             * @description Decimals: smallest units of a whole token are ten to this power.
             * @example 18
             */
            decimals: number;
            /**
             * @description Whether it is the LP token of a pool.
             * @example false
             */
            isLp: boolean;
            /**
             * @description Price of a whole token in EGLD; null without one.
             * @example 0.025
             */
            priceEgld: number | null;
            /**
             * @description Price of a whole token in USDC; null without one.
             * @example 1
             */
            priceUsdc: number | null;
            /**
             * @description What pools hold of it, worth in EGLD; null without a price.
             * @example 183201.4
             */
            liquidityEgld: number | null;
            /**
             * @description What pools hold of it, worth in USDC; null without a price.
             * @example 7328056
             */
            liquidityUsdc: number | null;
            /**
             * @description Pools that trade it.
             * @example 61
             */
            pools: number;
            /**
             * @description What to know before buying: freezable, pausable, wipeable (by the token's manager), thin_market.
             * @example [
             *       "freezable"
             *     ]
             */
            warnings: string[];
        };
        /**
         * PoolsResponse
         * @description The answer of `/api/v1/pools`: a page of those that match, those with most liquidity first.
         */
        PoolsResponse: {
            /** @description The page. */
            pools: components["schemas"]["PoolRow"][];
            /**
             * @description Rows that match, on all pages.
             * @example 61
             */
            total: number;
            /**
             * @description Rows before the page.
             * @example 0
             */
            offset: number;
            /**
             * @description Most rows on the page.
             * @example 100
             */
            limit: number;
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
        };
        /**
         * PoolRow
         * @description A pool. `tradable`: routes may use it. Liquidity is what it holds, null where a token has no price, and of a
         *         contract at a rate.
         */
        PoolRow: {
            /**
             * @description Id of the pool, for `includePools` and `excludePools`.
             * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            id: string;
            /**
             * @description xExchange, OneDex, AshSwap, JEX, XOXNO, LXOXNO, Hatom, or wrapper.
             * @example xExchange
             */
            dex: string;
            /**
             * @description Kind of pool: constant_product, stable or crypto; at a rate stake, supply or redeem.
             * @example constant_product
             */
            kind: string;
            /**
             * @description Address of the contract, bech32. OneDex has one for all pairs.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            address: string;
            /**
             * @description Tokens of the pool.
             * @example [
             *       "WEGLD-bd4d79",
             *       "USDC-c76f1f"
             *     ]
             */
            tokens: string[];
            /**
             * @description Reserves in smallest units, in the order of `tokens`.
             * @example [
             *       "81478482319716395147753",
             *       "4878990096191"
             *     ]
             */
            reserves: string[];
            /**
             * @description Reserves in whole tokens.
             * @example [
             *       81478.482319716,
             *       4878990.096191
             *     ]
             */
            reservesShort: number[];
            /**
             * @description What the pool allows: active, noSwaps (only liquidity moves) or inactive.
             * @example active
             */
            state: string;
            /**
             * @description Whether routes may use the pool.
             * @example true
             */
            tradable: boolean;
            /**
             * @description What the pool holds, worth in EGLD; null without a price, and at a rate.
             * @example 366402.8
             */
            liquidityEgld: number | null;
            /**
             * @description What the pool holds, worth in USDC; null without a price, and at a rate.
             * @example 14656112
             */
            liquidityUsdc: number | null;
            /**
             * @description Identifier of the pool's LP token; null without one.
             * @example EGLDUSDC-594e5e
             */
            lpToken: string | null;
            /**
             * @description LP units issued, smallest units.
             * @example 9390873908175
             */
            lpSupply: string;
            /**
             * @description OneDex: number of the pair.
             * @default null
             * @example 9
             */
            pairId?: number | null;
        };
        /**
         * PricesResponse
         * @description The answer of `/api/v1/prices`, by token.
         */
        PricesResponse: {
            /** @description Prices by token identifier. */
            prices: {
                [key: string]: components["schemas"]["Price"];
            };
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
        };
        /**
         * Price
         * @description The price of a whole token; null where it has none.
         */
        Price: {
            /**
             * @description Price of a whole token in EGLD; null without a price.
             * @example 0.025
             */
            egld: number | null;
            /**
             * @description Price of a whole token in USDC; null without a price.
             * @example 1
             */
            usdc: number | null;
        };
        /**
         * ConfigResponse
         * @description The answer of `/api/v1/config`. `referrals`: fees of known referrals, in basis points of the output.
         */
        ConfigResponse: {
            /**
             * @description Aggregator contract that transactions call, bech32.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            contract: string;
            /**
             * @description Chain id of the network; 1 is mainnet.
             * @example 1
             */
            chainID: string;
            /**
             * @description Gas price, in atomic units of EGLD per gas unit.
             * @example 1000000000
             */
            gasPrice: number;
            /**
             * @description The word for the native coin in requests.
             * @example EGLD
             */
            nativeToken: string;
            /**
             * @description Identifier of the wrapped native token.
             * @example WEGLD-bd4d79
             */
            wrappedNativeToken: string;
            /**
             * @description The token that prices in USDC are told in.
             * @example USDC-c76f1f
             */
            usdc: string;
            /**
             * @description Names that exchange filters take, in capitals or not.
             * @example [
             *       "xExchange",
             *       "OneDex",
             *       "AshSwap",
             *       "JEX"
             *     ]
             */
            exchanges: string[];
            /**
             * @description Names that `algorithm` takes.
             * @example [
             *       "greedy",
             *       "lagrangian",
             *       "hybrid"
             *     ]
             */
            algorithms: string[];
            /**
             * @description Fees of known referrals by id, in basis points of the output.
             * @example {
             *       "7": 35
             *     }
             */
            referrals: {
                [key: string]: number;
            };
            /**
             * @description Seconds between two looks at the market.
             * @example 5
             */
            pollSeconds: number;
            /** @description What is refused above. */
            limits: components["schemas"]["ConfigLimits"];
            /** @description What holds where a request says nothing. */
            defaults: components["schemas"]["ConfigDefaults"];
            /** @description The market state that the answer is of. */
            snapshot: components["schemas"]["SnapshotInfo"];
        };
        /**
         * ConfigLimits
         * @description What is refused above.
         */
        ConfigLimits: {
            /**
             * @description Most pools on one path.
             * @example 10
             */
            maxHops: number;
            /**
             * @description Most paths of a quote.
             * @example 50
             */
            maxSplits: number;
            /**
             * @description Most pools of a quote.
             * @example 100
             */
            maxPools: number;
            /**
             * @description Most built-in calls of a plan; a request that allows more gets no more.
             * @example 98
             */
            maxBuiltinCalls: number;
            /**
             * @description Most gas of a transaction, in gas units.
             * @example 600000000
             */
            maxGas: number;
            /**
             * @description Most inputs of a request, most amounts of a ladder.
             * @example 100
             */
            maxInputs: number;
            /**
             * @description Most inputs that share a transaction.
             * @example 10
             */
            inputsPerTransaction: number;
            /**
             * @description Requests of one IP address a second.
             * @example 100
             */
            requestsPerSecond: number;
            /**
             * @description Most open quote streams of one IP address.
             * @example 8
             */
            maxStreamsPerClient: number;
        };
        /**
         * ConfigDefaults
         * @description What holds where a request says nothing.
         */
        ConfigDefaults: {
            /**
             * @description Accepted loss against the quote, a fraction as a decimal string.
             * @example 0.01
             */
            slippage: string;
            /**
             * @description How the input is split: greedy, lagrangian or hybrid.
             * @example hybrid
             */
            algorithm: string;
            /**
             * @description Most pools on one path.
             * @example 10
             */
            maxHops: number;
            /**
             * @description Most paths of a quote.
             * @example 5
             */
            maxSplits: number | null;
            /**
             * @description Whether quotes show their paths.
             * @example true
             */
            includePaths: boolean;
            /**
             * @description Least profit of arbitrage, in basis points of the input.
             * @example 0
             */
            minProfitBps: number;
        };
        /**
         * ReferralResponse
         * @description The answer of `/api/v1/referrals/{id}`. `source`: `contract`, `setting`, or `unknown` without a fee.
         */
        ReferralResponse: {
            /**
             * @description Referral that the contract credits; 0 is none.
             * @example 0
             */
            referralId: number;
            /**
             * @description Aggregator contract that transactions call, bech32.
             * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
             */
            contract: string;
            /**
             * @description Who says so: contract, setting, or unknown, then without a fee.
             * @example contract
             */
            source: string;
            /**
             * @description What the contract takes of the output for it, in basis points; both fees.
             * @example 30
             */
            feeBps?: number;
            /**
             * @description When the contract was read, in milliseconds since 1970.
             * @example 1764000000000
             */
            readAt?: number;
            /**
             * @description Why it is not what the contract says.
             * @example it has not been read yet: ask again
             */
            reason?: string;
        };
        /**
         * Health
         * @description The answer of `/health`. `status` is `ok`, `starting` (no snapshot yet) or `stale`.
         */
        Health: {
            /**
             * @description ok, starting (no market yet) or stale (too old to quote on).
             * @example ok
             */
            status: string;
            /**
             * @description Version of the service.
             * @example 0.1.0
             */
            serviceVersion: string;
            /**
             * @description Pools of the market.
             * @example 1000
             */
            pools: number;
            /**
             * @description Tokens of the market, LP tokens included.
             * @example 1480
             */
            tokens: number;
            /**
             * @description Seconds since the service started.
             * @example 86400
             */
            uptimeSeconds: number;
            /**
             * @description Id of the market state; null before the first.
             * @example d8f5a321090f1785
             */
            snapshotId: string | null;
            /**
             * @description Seconds since the market was last seen upstream; null before the first.
             * @example 2.5
             */
            snapshotAgeSeconds: number | null;
            /**
             * @description Height of the block that the market is of.
             * @example 21000000
             */
            blockNonce: number | null;
            /**
             * @description Where the market is fetched.
             * @example http://127.0.0.1:8400/pools
             */
            source: string;
            /**
             * @description Why the last refresh failed; null if it did not.
             * @example upstream answered HTTP 502
             */
            lastError: string | null;
            /**
             * @description How many pools and tokens are left out because something is wrong with them.
             * @example 0
             */
            quarantined: number;
            /** @description The first hundred pools and tokens that are left out. */
            quarantine: components["schemas"]["Quarantined"][];
            /**
             * @description Processes that answer.
             * @example 2
             */
            workers: number;
            /**
             * @description How many processes are to answer.
             * @example 2
             */
            workersWanted: number;
        };
        /**
         * Quarantined
         * @description A pool or token that was left out: its id, or `#` and its position where it has none; and what is wrong.
         */
        Quarantined: {
            /**
             * @description Id of the pool or token; # and its position where it has none.
             * @example j:42
             */
            name: string;
            /**
             * @description What is wrong with it.
             * @example $.pools[7].reserves[0]: 0 is less than 1
             */
            reason: string;
        };
        /**
         * ErrorBody
         * @description Every error: one field, the message.
         */
        ErrorBody: {
            /**
             * @description What is wrong; clients match a part of the text.
             * @example unknown token_in 'INVALID-123456'
             */
            error: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getQuote: {
        parameters: {
            query: {
                /**
                 * @description Input token; EGLD for the native coin.
                 * @example EGLD
                 */
                from: string;
                /**
                 * @description Output token; the same as from: arbitrage.
                 * @example USDC-c76f1f
                 */
                to: string;
                /**
                 * @description Input in smallest units; either this or amountOut.
                 * @example 1000000000000000000
                 */
                amountIn?: string;
                /**
                 * @description Wanted output in smallest units; either this or amountIn.
                 * @example 39871234
                 */
                amountOut?: string;
                /**
                 * @description Accepted loss against the quote, a fraction.
                 * @example 0.01
                 */
                slippage?: number;
                /**
                 * @description How the input is split.
                 * @example hybrid
                 */
                algorithm?: "greedy" | "lagrangian" | "hybrid";
                /**
                 * @description Add the path breakdown.
                 * @example true
                 */
                includePaths?: boolean;
                /**
                 * @description Allow LP tokens to be minted and redeemed between other tokens, too.
                 * @example false
                 */
                includeLpRoutes?: boolean;
                /**
                 * @description Most pools on one path.
                 * @example 4
                 */
                maxHops?: number;
                /**
                 * @description Most paths. Without it: as many as are worth what they add to the fee.
                 * @example 5
                 */
                maxSplits?: number;
                /**
                 * @description Gas price of the transaction, and of that fee.
                 * @example 1000000000
                 */
                gasPrice?: number;
                /**
                 * @description Most pools in all.
                 * @example 20
                 */
                maxPools?: number;
                /**
                 * @description Most built-in calls of the transaction.
                 * @example 60
                 */
                maxBuiltinCalls?: number;
                /**
                 * @description bech32 address; adds `transaction`.
                 * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                sender?: string;
                /**
                 * @description The contract's referral.
                 * @example 7
                 */
                referralId?: number;
                /**
                 * @description Arbitrage: least profit, in basis points of the input.
                 * @example 5
                 */
                minProfitBps?: number;
                /**
                 * @description Largest price impact, a fraction; more is refused.
                 * @example 0.05
                 */
                maxPriceImpact?: number;
                /**
                 * @description Oldest market to answer from, in milliseconds since it was last seen; an older one is a 503.
                 * @example 10000
                 */
                maxAgeMs?: number;
                /**
                 * @description With a sender: have a gateway simulate the transaction; adds `simulation`, where this is offered.
                 * @example false
                 */
                simulate?: boolean;
                /**
                 * @description Only these, comma-separated, in capitals or not.
                 * @example xExchange,OneDex
                 */
                includeExchanges?: string;
                /**
                 * @description None of these.
                 * @example JEX
                 */
                excludeExchanges?: string;
                /**
                 * @description Only these pool ids, at most 64.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                includePools?: string;
                /**
                 * @description None of these pool ids.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                excludePools?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QuoteResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    drawQuote: {
        parameters: {
            query: {
                /**
                 * @description Input token; EGLD for the native coin.
                 * @example EGLD
                 */
                from: string;
                /**
                 * @description Output token; the same as from: arbitrage.
                 * @example USDC-c76f1f
                 */
                to: string;
                /**
                 * @description Input in smallest units; either this or amountOut.
                 * @example 1000000000000000000
                 */
                amountIn?: string;
                /**
                 * @description Wanted output in smallest units; either this or amountIn.
                 * @example 39871234
                 */
                amountOut?: string;
                /**
                 * @description How the input is split.
                 * @example hybrid
                 */
                algorithm?: "greedy" | "lagrangian" | "hybrid";
                /**
                 * @description Allow LP tokens to be minted and redeemed between other tokens, too.
                 * @example false
                 */
                includeLpRoutes?: boolean;
                /**
                 * @description Most pools on one path.
                 * @example 4
                 */
                maxHops?: number;
                /**
                 * @description Most paths. Without it: as many as are worth what they add to the fee.
                 * @example 5
                 */
                maxSplits?: number;
                /**
                 * @description Gas price of the transaction, and of that fee.
                 * @example 1000000000
                 */
                gasPrice?: number;
                /**
                 * @description Most pools in all.
                 * @example 20
                 */
                maxPools?: number;
                /**
                 * @description Most built-in calls of the transaction.
                 * @example 60
                 */
                maxBuiltinCalls?: number;
                /**
                 * @description The contract's referral.
                 * @example 7
                 */
                referralId?: number;
                /**
                 * @description Arbitrage: least profit, in basis points of the input.
                 * @example 5
                 */
                minProfitBps?: number;
                /**
                 * @description Largest price impact, a fraction; more is refused.
                 * @example 0.05
                 */
                maxPriceImpact?: number;
                /**
                 * @description Oldest market to answer from, in milliseconds since it was last seen; an older one is a 503.
                 * @example 10000
                 */
                maxAgeMs?: number;
                /**
                 * @description Only these, comma-separated, in capitals or not.
                 * @example xExchange,OneDex
                 */
                includeExchanges?: string;
                /**
                 * @description None of these.
                 * @example JEX
                 */
                excludeExchanges?: string;
                /**
                 * @description Only these pool ids, at most 64.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                includePools?: string;
                /**
                 * @description None of these pool ids.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                excludePools?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The picture */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "image/svg+xml": string;
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getPairConfig: {
        parameters: {
            query: {
                /**
                 * @description Input token; EGLD for the native coin.
                 * @example EGLD
                 */
                from: string;
                /**
                 * @description Output token; the same as from: arbitrage.
                 * @example USDC-c76f1f
                 */
                to: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PairConfig"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getPriceLadder: {
        parameters: {
            query: {
                /**
                 * @description Input token; EGLD for the native coin.
                 * @example EGLD
                 */
                from: string;
                /**
                 * @description Output token; the same as from: arbitrage.
                 * @example USDC-c76f1f
                 */
                to: string;
                /**
                 * @description Up to 100 inputs in smallest units, comma-separated.
                 * @example 1000000,2000000
                 */
                amounts: string;
                /**
                 * @description How the input is split.
                 * @example hybrid
                 */
                algorithm?: "greedy" | "lagrangian" | "hybrid";
                /**
                 * @description Allow LP tokens to be minted and redeemed between other tokens, too.
                 * @example false
                 */
                includeLpRoutes?: boolean;
                /**
                 * @description Most pools on one path.
                 * @example 4
                 */
                maxHops?: number;
                /**
                 * @description Most paths. Without it: as many as are worth what they add to the fee.
                 * @example 5
                 */
                maxSplits?: number;
                /**
                 * @description Gas price of the transaction, and of that fee.
                 * @example 1000000000
                 */
                gasPrice?: number;
                /**
                 * @description Most pools in all.
                 * @example 20
                 */
                maxPools?: number;
                /**
                 * @description Most built-in calls of the transaction.
                 * @example 60
                 */
                maxBuiltinCalls?: number;
                /**
                 * @description The contract's referral.
                 * @example 7
                 */
                referralId?: number;
                /**
                 * @description Arbitrage: least profit, in basis points of the input.
                 * @example 5
                 */
                minProfitBps?: number;
                /**
                 * @description Largest price impact, a fraction; more is refused.
                 * @example 0.05
                 */
                maxPriceImpact?: number;
                /**
                 * @description Oldest market to answer from, in milliseconds since it was last seen; an older one is a 503.
                 * @example 10000
                 */
                maxAgeMs?: number;
                /**
                 * @description Only these, comma-separated, in capitals or not.
                 * @example xExchange,OneDex
                 */
                includeExchanges?: string;
                /**
                 * @description None of these.
                 * @example JEX
                 */
                excludeExchanges?: string;
                /**
                 * @description Only these pool ids, at most 64.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                includePools?: string;
                /**
                 * @description None of these pool ids.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                excludePools?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LadderResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    postBatchQuote: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BatchRequest"];
            };
        };
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body did not come in time */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body is larger than 1 MiB */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body is compressed */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    postMultiSwap: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MultiSwapRequest"];
            };
        };
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MultiSwapResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body did not come in time */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body is larger than 1 MiB */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The body is compressed */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    streamQuotes: {
        parameters: {
            query: {
                /**
                 * @description Input token; EGLD for the native coin.
                 * @example EGLD
                 */
                from: string;
                /**
                 * @description Output token; the same as from: arbitrage.
                 * @example USDC-c76f1f
                 */
                to: string;
                /**
                 * @description Input in smallest units; either this or amountOut.
                 * @example 1000000000000000000
                 */
                amountIn?: string;
                /**
                 * @description Wanted output in smallest units; either this or amountIn.
                 * @example 39871234
                 */
                amountOut?: string;
                /**
                 * @description Accepted loss against the quote, a fraction.
                 * @example 0.01
                 */
                slippage?: number;
                /**
                 * @description How the input is split.
                 * @example hybrid
                 */
                algorithm?: "greedy" | "lagrangian" | "hybrid";
                /**
                 * @description Add the path breakdown.
                 * @example true
                 */
                includePaths?: boolean;
                /**
                 * @description Allow LP tokens to be minted and redeemed between other tokens, too.
                 * @example false
                 */
                includeLpRoutes?: boolean;
                /**
                 * @description Most pools on one path.
                 * @example 4
                 */
                maxHops?: number;
                /**
                 * @description Most paths. Without it: as many as are worth what they add to the fee.
                 * @example 5
                 */
                maxSplits?: number;
                /**
                 * @description Gas price of the transaction, and of that fee.
                 * @example 1000000000
                 */
                gasPrice?: number;
                /**
                 * @description Most pools in all.
                 * @example 20
                 */
                maxPools?: number;
                /**
                 * @description Most built-in calls of the transaction.
                 * @example 60
                 */
                maxBuiltinCalls?: number;
                /**
                 * @description bech32 address; adds `transaction`.
                 * @example erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                sender?: string;
                /**
                 * @description The contract's referral.
                 * @example 7
                 */
                referralId?: number;
                /**
                 * @description Arbitrage: least profit, in basis points of the input.
                 * @example 5
                 */
                minProfitBps?: number;
                /**
                 * @description Largest price impact, a fraction; more is refused.
                 * @example 0.05
                 */
                maxPriceImpact?: number;
                /**
                 * @description Oldest market to answer from, in milliseconds since it was last seen; an older one is a 503.
                 * @example 10000
                 */
                maxAgeMs?: number;
                /**
                 * @description Only these, comma-separated, in capitals or not.
                 * @example xExchange,OneDex
                 */
                includeExchanges?: string;
                /**
                 * @description None of these.
                 * @example JEX
                 */
                excludeExchanges?: string;
                /**
                 * @description Only these pool ids, at most 64.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                includePools?: string;
                /**
                 * @description None of these pool ids.
                 * @example x:erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva
                 */
                excludePools?: string;
            };
            header?: {
                /**
                 * @description Id of the event that the client has: it gets none while the answer is the same.
                 * @example d8f5a321090f1785
                 */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events `quote` and `error` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": {
                        /**
                         * @description What the data is.
                         * @enum {string}
                         */
                        event: "quote" | "error";
                        /** @description Digest of the answer; the same as long as it is. */
                        id: string;
                        /** @description The quote, or the error. */
                        data: string;
                    };
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getTokens: {
        parameters: {
            query?: {
                /**
                 * @description A part of identifier, name or ticker, in capitals or not.
                 * @example usd
                 */
                search?: string;
                /**
                 * @description Rows before the page.
                 * @example 100
                 */
                offset?: number;
                /**
                 * @description Most rows on the page.
                 * @example 20
                 */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TokensResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getPools: {
        parameters: {
            query?: {
                /**
                 * @description Only pools that trade this token.
                 * @example EGLD
                 */
                token?: string;
                /**
                 * @description Only pools of these exchanges, comma-separated.
                 * @example xExchange,JEX
                 */
                exchange?: string;
                /**
                 * @description Rows before the page.
                 * @example 100
                 */
                offset?: number;
                /**
                 * @description Most rows on the page.
                 * @example 20
                 */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PoolsResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getPrices: {
        parameters: {
            query?: {
                /**
                 * @description Up to 100 tokens, comma-separated; without it all.
                 * @example EGLD,USDC-c76f1f
                 */
                tokens?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PricesResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getConfig: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ConfigResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getReferral: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Id of the referral; up to 2^64 - 1.
                 * @example 7
                 */
                id: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer */
            200: {
                headers: {
                    /** @description Seconds since the market was last seen upstream. */
                    "X-Snapshot-Age": number;
                    /** @description Id of the market state: equal ids, equal answers. */
                    "X-Snapshot-Id": string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReferralResponse"];
                };
            };
            /** @description The request cannot be answered; the text says why, and clients match a part of it */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description More requests than the limit; Retry-After says in how many seconds */
            429: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No usable market, or too much is waiting; Retry-After says in how many seconds */
            503: {
                headers: {
                    /** @description In how many seconds to ask again. */
                    "Retry-After": number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    getHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description State of the service */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            /** @description Another method than GET */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description State of the service */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
}
